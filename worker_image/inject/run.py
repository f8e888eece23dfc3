"""Starts the agent from the archive that this file lies in, with whatever Python an image has.

Layer: outside of all packages; `build.py` puts it beside `trainrun` (the agent), `lib` (what
scripts import) and `libraries` (boto3, for the agent). The Python runs with `-I -S`: the agent sees
nothing but the archive and the standard library, not the image's packages, and no PYTHONPATH or
other variable that is meant for the training.
"""

from __future__ import annotations

import signal
import sys
import threading
import zipfile
from pathlib import Path

ARCHIVE = Path(__file__).parent
FOLDER = ARCHIVE.with_suffix("")
"""Where things are unpacked."""
_unpacking = threading.Lock()


def unpack(part: str) -> str:
    """Write one folder of the archive beside it; returns where. Raises OSError."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{part}/")]
        archive.extractall(FOLDER, names)
    return str(FOLDER / part)


def bring_boto3() -> None:
    """Let boto3 be imported; any thread may call this, any number of times. Raises OSError.

    botocore reads files of its own, so it cannot be imported from the archive.
    """
    with _unpacking:
        if str(FOLDER / "libraries") not in sys.path:
            sys.path.append(unpack("libraries"))


def start() -> None:
    """Run the agent; leaves with its exit code."""
    # Before anything else is loaded: see where the agent's main takes this back.
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
    sys.exit(main(sys.argv[1:], library=library, bring_boto3=bring_boto3))
