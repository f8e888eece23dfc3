"""Brings the agent into a worker's container and becomes it: the first process of every worker.

Layer: outside of all packages: its text is what the container's Python runs, with `-I -S -c`. It
knows nothing but the standard library, and any Python can read it, since it has to say that one is
too old. The operator is asked until it answers: nothing could begin without it anyway.
"""

import sys

OLDEST = (3, 10)
ARCHIVE = "/trainrun/agent.zip"
FOLDER = "/trainrun/agent"


def refuse(message):
    """Tell what is wrong, also to `kubectl describe pod`, and leave with code 2."""
    sys.stderr.write("trainrun: %s\n" % message)
    try:
        with open("/dev/termination-log", "w") as log:
            log.write("trainrun: %s\n" % message)
    except EnvironmentError:
        pass  # the container's output has it
    sys.exit(2)


if sys.version_info < OLDEST:
    refuse(
        "%s is Python %d.%d and the agent needs Python %d.%d or newer; use an image that has one, "
        "and name it as the first word of the worker's command where python3 is another"
        % ((sys.executable,) + tuple(sys.version_info[:2]) + OLDEST)
    )

import http.client  # noqa: E402 - Python 2 has none
import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import ssl  # noqa: E402
import time  # noqa: E402
import zipfile  # noqa: E402
from urllib.parse import urlsplit  # noqa: E402


def fetch(config):
    """Ask the operator for the agent, and again until it is there."""
    address = urlsplit(config["operator_url"])
    trust = ssl.create_default_context(cadata=config["ca"])
    pause, told = 0.2, ""
    while True:
        # No proxy, whatever the environment says: it is for the training.
        operator = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=30, context=trust
        )
        try:
            operator.request("GET", "/v1/agent")
            answer = operator.getresponse()
            content = answer.read()
            if answer.status == 200:
                return content
            trouble = "%d %s" % (answer.status, content[:200].decode(errors="replace"))
        except (OSError, http.client.HTTPException) as error:
            trouble = str(error) or type(error).__name__
        finally:
            operator.close()
        if trouble != told:
            told = trouble
            sys.stderr.write("trainrun: the agent cannot be had from the operator: %s\n" % trouble)
            sys.stderr.flush()
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, 5.0)


def unpack(content):
    """All but the libraries, which the agent unpacks when it needs them."""
    try:
        with open(ARCHIVE, "wb") as file:
            file.write(content)
        with zipfile.ZipFile(ARCHIVE) as archive:
            names = [name for name in archive.namelist() if not name.startswith("libraries/")]
            archive.extractall(FOLDER, names)
        os.makedirs(FOLDER + "/lib", exist_ok=True)
        if not os.path.lexists(FOLDER + "/lib/trainrun"):
            os.symlink("../site/trainrun", FOLDER + "/lib/trainrun")
    except OSError as error:
        refuse("the agent cannot be written to %s: %s" % (FOLDER, error))


def main():
    """Become the agent."""
    # To process 1 of a container a SIGTERM without a handler is lost.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    unpack(fetch(json.loads(os.environ["TRAINRUN_AGENT_CONFIG"])))
    # Not by exec: half of what the agent imports is here already, 60 ms of CPU.
    sys.argv[0] = FOLDER + "/run.py"
    with open(sys.argv[0]) as file:
        program = compile(file.read(), sys.argv[0], "exec")
    exec(program, {"__name__": "__main__", "__file__": sys.argv[0]})


if __name__ == "__main__":
    main()
