"""Brings the agent into a worker's container and becomes it: the first process of every worker.

Layer: outside of all packages: its text is what the container's Python runs, with `-I -S -c`. It
knows nothing but the standard library, and any Python can read it, since it has to say that one is
too old. The operator is asked until it answers: nothing could begin without it anyway. Where its
Service leads nowhere, an address of the configuration may.
"""

import sys

OLDEST = (3, 10)
ARCHIVE = "/trainrun/agent.zip"


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

import http.client  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import ssl  # noqa: E402
import time  # noqa: E402
from urllib.parse import urlsplit  # noqa: E402


def identity(config):
    """The header that shows who asks: those who do not show it are served last."""
    try:
        with open(config["token_file"]) as file:
            return {"Authorization": "Bearer " + file.read().strip()}
    except (KeyError, EnvironmentError):
        return {}


def ask(service, address, trust, headers):
    """Ask once and return the archive. Raises OSError and HTTPException.

    With an address it is dialled; the certificate must be for the service's name all the same. Not
    by urllib.request: a proxy that the environment names is for the training.
    """
    operator = http.client.HTTPSConnection(service, timeout=30, context=trust)
    try:
        if address:
            place = urlsplit("//" + address)
            plain = socket.create_connection((place.hostname, place.port), 5)
            operator.sock = trust.wrap_socket(plain, server_hostname=operator.host)
            operator.sock.settimeout(30)
        operator.request("GET", "/v1/agent", headers=headers)
        answer = operator.getresponse()
        if answer.status != 200:
            raise OSError("%d %s" % (answer.status, answer.read(200).decode(errors="replace")))
        return answer.read()
    finally:
        operator.close()


def fetch(config):
    """Ask the operator for the agent, and again until it is there."""
    service = urlsplit(config["operator_url"]).netloc
    trust = ssl.create_default_context(cadata=config["ca"])
    pause, reported = 0.2, ""
    while True:
        trouble = ""
        for address in [""] + config.get("operators", []):
            try:
                return ask(service, address, trust, identity(config))
            except (OSError, http.client.HTTPException) as error:
                trouble = trouble or str(error) or type(error).__name__
        if trouble != reported:
            reported = trouble
            sys.stderr.write(
                "trainrun: the agent cannot be fetched from the operator: %s\n" % trouble
            )
            sys.stderr.flush()
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, 5.0)


def keep(archive):
    """Write the archive; a volume that cannot be written is nothing to wait for."""
    try:
        with open(ARCHIVE, "wb") as file:
            file.write(archive)
    except OSError as error:
        refuse("the agent cannot be written to %s: %s" % (ARCHIVE, error))


def main():
    """Become the agent."""
    # To process 1 of a container a SIGTERM without a handler is lost.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    keep(fetch(json.loads(os.environ["TRAINRUN_AGENT_CONFIG"])))
    # Not by exec: Python itself and half of what the agent imports are here already.
    sys.path.insert(0, ARCHIVE)
    importlib.import_module("run").start()


if __name__ == "__main__":
    main()
