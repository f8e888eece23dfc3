"""Fetches the agent into a worker's container and becomes it: the first process of every worker.

Layer: outside of all packages: the container's Python runs this text with `-I -S -c`. It uses only
the standard library, and any Python can parse it, so that it can report one that is too old. It
retries until the operator answers: without it nothing can start. If the Service does not work, it
tries the addresses in the configuration.
"""

import sys

OLDEST = (3, 10)
ARCHIVE = "/trainrun/agent.zip"


def refuse(message):
    """Report the error, also for `kubectl describe pod`, and exit with code 2."""
    sys.stderr.write("trainrun: %s\n" % message)
    try:
        with open("/dev/termination-log", "w") as log:
            log.write("trainrun: %s\n" % message)
    except EnvironmentError:
        pass  # the container's output has it
    sys.exit(2)


if sys.version_info < OLDEST:
    refuse(
        "%s is Python %d.%d, but the agent needs Python %d.%d or newer. Use an image that has it; "
        "if python3 is another one, name it as the first word of the worker's command"
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
    """The header with the worker's token; downloads without it are served last."""
    try:
        with open(config["token_file"]) as file:
            return {"Authorization": "Bearer " + file.read().strip()}
    except (KeyError, EnvironmentError):
        return {}


def ask(service, address, trust, headers):
    """Send one request and return the archive. Raises OSError and HTTPException.

    If an address is given, dial it; the certificate must still be for the service's name. Not by
    urllib.request: a proxy in the environment is for the training.
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
    """Request the agent from the operator until it arrives."""
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
    """Write the archive; refuse if the volume is not writable, since waiting would not help."""
    try:
        with open(ARCHIVE, "wb") as file:
            file.write(archive)
    except OSError as error:
        refuse("the agent cannot be written to %s: %s" % (ARCHIVE, error))


def main():
    """Become the agent."""
    # In process 1 of a container a SIGTERM without a handler has no effect.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    keep(fetch(json.loads(os.environ["TRAINRUN_AGENT_CONFIG"])))
    # Not by exec: Python and half of the agent's imports are loaded already.
    sys.path.insert(0, ARCHIVE)
    importlib.import_module("run").start()


if __name__ == "__main__":
    main()
