"""Starts the agent from the folder that this file lies in, with whatever Python an image has.

Layer: outside of all packages; `build.py` puts it beside `site/` (the agent), `libraries/` (what it
needs) and `lib/` (the package that scripts import). It is run with `-I -S`: the agent sees nothing
but its own folder and the standard library, not the image's packages, and no PYTHONPATH or other
variable that is meant for the training.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import zipfile
from pathlib import Path

FOLDER = Path(__file__).absolute().parent
LIBRARIES = FOLDER / "libraries"
"""Folder of what only a worker needs that reads or writes a checkpoint: most of it all."""


class Unpacker:
    """Finds libraries that are still in the archive, by unpacking them when they are needed."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._lock = threading.Lock()

    def find_spec(self, name: str, path: object = None, _target: object = None) -> None:
        """Asked before sys.path is; leaves the finding to it."""
        if path is None and name in ("boto3", "botocore"):
            with self._lock:
                if self in sys.meta_path:
                    self._unpack()
                    sys.meta_path.remove(self)

    def _unpack(self) -> None:
        with zipfile.ZipFile(self._archive) as archive:
            names = [name for name in archive.namelist() if name.startswith("libraries/")]
            archive.extractall(FOLDER, names)
        importlib.invalidate_caches()


def start() -> None:
    """Run the agent; leaves with its exit code."""
    # Before anything else is loaded: see where the agent's main takes this back.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    sys.path[:0] = [str(FOLDER / "site"), str(LIBRARIES)]
    if not LIBRARIES.exists():
        sys.meta_path.insert(0, Unpacker(FOLDER.with_suffix(".zip")))
    from trainrun.agent.main import main

    sys.exit(main(sys.argv[1:], library=str(FOLDER / "lib")))


start()
