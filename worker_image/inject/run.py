"""Starts the agent from the archive that this file lies in, with whatever Python an image has.

Layer: outside of all packages; `build.py` puts it beside `trainrun` (the agent), `lib/` (the
package that scripts import) and `libraries.zip` (what the agent needs). The Python runs with
`-I -S`: the agent sees nothing but the archive and the standard library, not the image's packages,
and no PYTHONPATH or other variable that is meant for the training.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import importlib.util
import marshal
import signal
import sys
import threading
import zipimport
from pathlib import Path

ARCHIVE = Path(__file__).parent
FOLDER = ARCHIVE.with_suffix("")
"""Where things are unpacked."""
LIBRARIES = FOLDER / "libraries"
CONTENTS = "lib.txt"
"""Names the files of `lib/`, one per line."""
METHODS = f"methods.{importlib.util.MAGIC_NUMBER.hex()}"
"""What `dataclasses` compiles in a Python with this format of code: sources and code."""


class Unpacker:
    """Finds libraries that are still in the archive, by unpacking them when they are needed.

    Only a worker needs them that reads or writes a checkpoint, and they are most of it all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def find_spec(self, name: str, path: object = None, _target: object = None) -> None:
        """Asked before sys.path is; leaves the finding to it."""
        if path is None and name in ("boto3", "botocore"):
            with self._lock:
                if self in sys.meta_path:
                    self._unpack()
                    sys.meta_path.remove(self)

    def _unpack(self) -> None:
        import zipfile

        with zipfile.ZipFile(ARCHIVE) as archive, archive.open("libraries.zip") as file:
            with zipfile.ZipFile(file) as libraries:
                libraries.extractall(LIBRARIES)
        importlib.invalidate_caches()


def reuse_methods(archive: zipimport.zipimporter) -> None:
    """Spare `dataclasses` to compile the methods that it writes: half of loading the agent.

    It hands their source to the built-in `exec`; a name of its own module comes before that. In a
    Python that does so no more, or another than the archive was built with, nothing changes.
    """
    try:
        known = marshal.loads(archive.get_data(METHODS))
    except OSError:
        return

    def run(source: str, *names: object) -> None:
        # As in the module that wrote it, which is not under this one's `from __future__`.
        exec(known.get(source) or compile(source, "<string>", "exec", dont_inherit=True), *names)

    dataclasses.exec = run


def unpack_library(archive: zipimport.zipimporter) -> None:
    """Write what scripts import, with what this file was loaded by.

    With zipfile, and what that imports, it would be a twentieth of a worker's start.
    """
    for name in archive.get_data(CONTENTS).decode().splitlines():
        file = FOLDER / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(archive.get_data(name))


def start() -> None:
    """Run the agent; leaves with its exit code."""
    # Before anything else is loaded: see where the agent's main takes this back.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    sys.path.insert(1, str(LIBRARIES))  # after the archive, where this file was found
    if not LIBRARIES.exists():
        sys.meta_path.insert(0, Unpacker())
    archive = zipimport.zipimporter(str(ARCHIVE))
    reuse_methods(archive)
    from trainrun.agent import last_words
    from trainrun.agent.main import main

    gc.freeze()  # all that is loaded stays
    gc.enable()
    try:
        unpack_library(archive)
    except OSError as error:
        message = f"trainrun: the agent cannot be written to {FOLDER}: {error}"
        sys.stderr.write(message + "\n")
        last_words.write(message)
        sys.exit(2)
    sys.exit(main(sys.argv[1:], library=str(FOLDER / "lib")))
