"""Starts the agent from the archive that this file lies in, with whatever Python an image has.

Layer: outside of all packages; `build.py` puts it beside `trainrun` (the agent), the package that
scripts import, and `libraries.zip` (what the agent needs). The Python runs with
`-I -S`: the agent sees nothing but the archive and the standard library, not the image's packages,
and no PYTHONPATH or other variable that is meant for the training.
"""

from __future__ import annotations

import late  # noqa: F401  # isort: skip - first: the others import what it stands for

import dataclasses
import gc
import hashlib
import importlib
import importlib.util
import marshal
import signal
import sys
import threading
import zipimport
from importlib.machinery import ModuleSpec
from pathlib import Path

ARCHIVE = Path(__file__).parent
FOLDER = ARCHIVE.with_suffix("")
"""Where things are unpacked."""
LIBRARIES = FOLDER / "libraries"
LIBRARY = "library.marshal"
"""In the archive: the files of the package that scripts import, {path: content}."""
COMPILED = f"compiled-{importlib.util.MAGIC_NUMBER.hex()}.marshal"
"""In the archive: what a Python with this format of code need not compile; see `build.py`."""


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


class Compiled:
    """Finds the agent's modules as code, all in one place.

    To look each up in the archive would be a quarter of loading them.
    """

    def __init__(self, archive: zipimport.zipimporter, modules: dict[str, tuple[str, bytes]]):
        """`modules`: by name, the path in the archive and the code."""
        self._archive = archive
        self._modules = modules

    def get_source(self, name: str) -> str:
        """For the lines in tracebacks."""
        return self._archive.get_data(self._modules[name][0]).decode()

    def find_spec(self, name: str, _path: object = None, _target: object = None):
        """Asked before sys.path is."""
        if name not in self._modules:
            return None
        file = ARCHIVE / self._modules[name][0]
        package = file.name == "__init__.py"
        spec = ModuleSpec(name, self, origin=str(file), is_package=package)
        spec.has_location = True
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """As usual."""

    def exec_module(self, module) -> None:
        """Run the module's code."""
        exec(marshal.loads(self._modules[module.__name__][1]), vars(module))


def key_of(source: str) -> bytes:
    """What stands for a source text in the archive: all of them are 200 KB."""
    return hashlib.sha256(source.encode()).digest()


def reuse(archive: zipimport.zipimporter) -> None:
    """Spare this Python what the one that built the archive has done, if they are of one kind."""
    try:
        modules, methods = marshal.loads(archive.get_data(COMPILED))
    except OSError:
        return
    sys.meta_path.insert(0, Compiled(archive, modules))

    def run(source: str, *names: object) -> None:
        known = methods.get(key_of(source))
        # As in the module that wrote it, which is not under this one's `from __future__`.
        exec(known or compile(source, "<string>", "exec", dont_inherit=True), *names)

    # Half of loading the agent is compiling the methods that `dataclasses` writes. It hands their
    # source to the built-in `exec`; a name of its own module comes before that. In a Python that
    # does so no more nothing changes.
    dataclasses.exec = run


def unpack_library(archive: zipimport.zipimporter) -> None:
    """Write what scripts import.

    Not with zipfile: that, and what it imports, would be a twentieth of a worker's start.
    """
    contents = marshal.loads(archive.get_data(LIBRARY))
    files = {FOLDER / name: content for name, content in contents.items()}
    for folder in {file.parent for file in files}:
        folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        file.write_bytes(content)


def start() -> None:
    """Run the agent; leaves with its exit code."""
    # Before anything else is loaded: see where the agent's main takes this back.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    sys.path.insert(1, str(LIBRARIES))  # after the archive, where this file was found
    if not LIBRARIES.exists():
        sys.meta_path.insert(0, Unpacker())
    archive = zipimport.zipimporter(str(ARCHIVE))
    reuse(archive)
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
