"""Starts the agent from the folder that this file lies in, with whatever Python an image has.

Layer: outside of all packages; `build.py` puts it beside `site/` (the agent and what it needs) and
`lib/` (the package that scripts import). Written so that any Python can read it, since it has to
say that one is too old. The agent sees nothing but its own folder and the standard library: not
the image's packages, and no PYTHONPATH or other variable that is meant for the training.
"""

import os
import sys

OLDEST = (3, 10)
FOLDER = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = "libraries"
"""Folder of what only a worker needs that reads or writes a checkpoint: most of it all."""
TERMINATION_LOG = "/dev/termination-log"
"""What `kubectl describe pod` shows of an ended container; there in every container."""


def refuse():
    """Explain that this Python is too old, and leave with code 2."""
    message = (
        "trainrun: %s is Python %d.%d and the agent needs Python %d.%d or newer; use an image that "
        "has one, and name it as the first word of the worker's command where python3 is another\n"
        % ((sys.executable,) + tuple(sys.version_info[:2]) + OLDEST)
    )
    sys.stderr.write(message)
    if os.path.exists(TERMINATION_LOG):
        try:
            with open(TERMINATION_LOG, "w") as log:
                log.write(message)
        except EnvironmentError:
            pass  # the container's output has it
    sys.exit(2)


class Unpacker(object):
    """Finds libraries that are still in the archive, by unpacking them when they are needed."""

    def __init__(self, archive, folder):
        import threading

        self.archive = archive
        self.folder = folder
        self.lock = threading.Lock()

    def find_spec(self, name, path=None, _target=None):
        """Asked before sys.path is; leaves the finding to it."""
        if path is None and name in ("boto3", "botocore"):
            with self.lock:
                if self in sys.meta_path:
                    self.unpack()
                    sys.meta_path.remove(self)

    def unpack(self):
        """Put the libraries beside the agent."""
        import importlib
        import zipfile

        with zipfile.ZipFile(self.archive) as archive:
            names = [name for name in archive.namelist() if name.startswith(LIBRARIES + "/")]
            archive.extractall(self.folder, names)
        importlib.invalidate_caches()


def start():
    """Run the agent; leaves with its exit code."""
    if sys.executable and not (sys.flags.isolated and sys.flags.no_site):
        # Begin again without the image's packages; the environment stays, for the training.
        command = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
        os.execv(sys.executable, command + sys.argv[1:])
    import signal

    # Before anything else is loaded: see where the agent's main takes this back.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    sys.path[:0] = [os.path.join(FOLDER, "site"), os.path.join(FOLDER, LIBRARIES)]
    if not os.path.exists(os.path.join(FOLDER, LIBRARIES)):
        sys.meta_path.insert(0, Unpacker(FOLDER + ".zip", FOLDER))
    from trainrun.agent.main import main

    sys.exit(main(sys.argv[1:], library=os.path.join(FOLDER, "lib")))


if sys.version_info < OLDEST:
    refuse()
else:
    start()
