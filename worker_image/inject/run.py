"""Starts the agent from the archive that contains this file, with the image's Python.

Layer: outside of all packages; `build.py` puts it next to `trainrun` (the agent), `lib` (what
scripts import) and `libraries` (boto3, for the agent). Python runs with `-I -S`: the agent sees
only the archive and the standard library, not the image's packages, and no PYTHONPATH or other
variable for the training.
"""

from __future__ import annotations

import signal
import sys
import threading
import zipfile
from pathlib import Path

ARCHIVE = Path(__file__).parent
FOLDER = ARCHIVE.with_suffix("")
"""Where its parts are unpacked."""
_unpacking = threading.Lock()


def unpack(part: str) -> str:
    """Unpack one folder of the archive next to it and return its path. Raises OSError."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{part}/")]
        archive.extractall(FOLDER, names)
    return str(FOLDER / part)


def bring_client(scheme: str) -> None:
    """Make the client of stores with this URI scheme importable; any thread may call this, any
    number of times. Raises OSError.

    botocore reads its own data files, so it cannot be imported from the archive. obstore is
    compiled, so it is not in the archive: it comes from the image, if that has it.
    """
    with _unpacking:
        if scheme == "s3" and str(FOLDER / "libraries") not in sys.path:
            sys.path.append(unpack("libraries"))
        elif scheme in ("gs", "az") and "obstore" not in sys.modules:
            import_from_image("obstore")


def import_from_image(name: str) -> None:
    """Import a package of the image and nothing else of it; does nothing where it is missing."""
    import subprocess  # only now: see `start`

    ask = f"import os, {name}; print(os.path.dirname(os.path.dirname({name}.__file__)))"
    command = [sys.executable, "-I", "-c", ask]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    if folder := asked.stdout.strip():
        sys.path.append(folder)
        try:
            __import__(name)
        finally:
            sys.path.remove(folder)


def start() -> None:
    """Run the agent and exit with its exit code."""
    # Before anything else is loaded: see where the agent's main unblocks it.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    from trainrun.agent import termination_message
    from trainrun.agent.main import main

    try:
        library = unpack("lib")
    except OSError as error:
        message = f"trainrun: the agent cannot be written to {FOLDER}: {error}"
        sys.stderr.write(message + "\n")
        termination_message.write(message)
        sys.exit(2)
    sys.exit(main(sys.argv[1:], library=library, bring_client=bring_client))
