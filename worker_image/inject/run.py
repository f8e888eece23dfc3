"""Starts the agent from the archive that this file lies in, with whatever Python an image has.

Layer: outside of all packages; `build.py` puts it beside `trainrun` (the agent), `lib/` (the
package that scripts import) and `libraries.zip` (what the agent needs). The Python runs with
`-I -S`: the agent sees nothing but the archive and the standard library, not the image's packages,
and no PYTHONPATH or other variable that is meant for the training.
"""

from __future__ import annotations

import gc
import importlib
import signal
import sys
import threading
import zipfile
from pathlib import Path

ARCHIVE = Path(__file__).parent
FOLDER = ARCHIVE.with_suffix("")
"""Where things are unpacked."""
LIBRARIES = FOLDER / "libraries"


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
        with zipfile.ZipFile(ARCHIVE) as archive, archive.open("libraries.zip") as file:
            with zipfile.ZipFile(file) as libraries:
                libraries.extractall(LIBRARIES)
        importlib.invalidate_caches()


def start() -> None:
    """Run the agent; leaves with its exit code."""
    # Before anything else is loaded: see where the agent's main takes this back.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    sys.path.insert(1, str(LIBRARIES))  # after the archive, where this file was found
    if not LIBRARIES.exists():
        sys.meta_path.insert(0, Unpacker())
    from trainrun.agent import last_words
    from trainrun.agent.main import main

    gc.freeze()  # all that is loaded stays
    gc.enable()
    try:
        with zipfile.ZipFile(ARCHIVE) as archive:
            names = [name for name in archive.namelist() if name.startswith("lib/")]
            archive.extractall(FOLDER, names)
    except OSError as error:
        message = f"trainrun: the agent cannot be written to {FOLDER}: {error}"
        sys.stderr.write(message + "\n")
        last_words.write(message)
        sys.exit(2)
    sys.exit(main(sys.argv[1:], library=str(FOLDER / "lib")))
