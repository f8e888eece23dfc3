"""Brings the agent into a worker's container and becomes it: the first process of every worker.

Layer: outside of all packages: its text is what the container's Python runs, with `-I -S -c`. It
knows nothing but the standard library, and any Python can read it, since it has to say that one is
too old. The operator is asked until it answers: nothing could begin without it anyway.
"""

import sys

OLDEST = (3, 10)
ARCHIVE = "/trainrun/agent.zip"
PIECE = 1 << 16


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

import gc  # noqa: E402

# Until all is loaded: it stays, and to look through it again and again is a tenth of the start.
gc.disable()

import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import random  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import ssl  # noqa: E402
import time  # noqa: E402


def ask(host, port, trust):
    """Ask once, whatever proxy the environment names: that is for the training.

    Not with http.client: to import it costs 12 ms of CPU, a tenth of a worker's start.
    """
    with socket.create_connection((host, port), timeout=30) as connection:
        with trust.wrap_socket(connection, server_hostname=host) as operator:
            operator.sendall(b"GET /v1/agent HTTP/1.0\r\nHost: %s\r\n\r\n" % host.encode())
            with operator.makefile("rb", PIECE) as answer:
                lines = [answer.readline()]
                while lines[-1].strip():
                    lines.append(answer.readline())
                status = lines[0].decode("latin-1").split()[1:2]
                if status != ["200"]:
                    text = answer.read(200).decode(errors="replace")
                    raise OSError(" ".join(status + [text]) or "it hung up")
                size = keep(answer)
    if b"content-length: %d\r\n" % size not in [line.lower() for line in lines]:
        raise OSError("it hung up after %d bytes" % size)


def keep(answer):
    """Write the archive piece by piece; returns its size.

    Not at once: fresh memory for all of it, and a copy, cost more than its bytes do.
    """
    size = 0
    with keeping(open, ARCHIVE, "wb") as file:
        for piece in iter(lambda: answer.read1(PIECE), b""):
            size += keeping(file.write, piece)
    return size


def keeping(function, *arguments):
    """Call what writes; a volume that cannot be written is nothing to wait for."""
    try:
        return function(*arguments)
    except OSError as error:
        refuse("the agent cannot be written to %s: %s" % (ARCHIVE, error))


def fetch(config):
    """Ask the operator for the agent, and again until it is there."""
    # https://host:port; not by urllib.parse, which is another fiftieth of the start.
    host, port = config["operator_url"].rpartition("/")[2].split(":")
    trust = ssl.create_default_context(cadata=config["ca"])
    pause, told = 0.2, ""
    while True:
        try:
            return ask(host, int(port), trust)
        except OSError as error:
            trouble = str(error) or type(error).__name__
        if trouble != told:
            told = trouble
            sys.stderr.write("trainrun: the agent cannot be had from the operator: %s\n" % trouble)
            sys.stderr.flush()
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, 5.0)


def main():
    """Become the agent."""
    # To process 1 of a container a SIGTERM without a handler is lost.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    fetch(json.loads(os.environ["TRAINRUN_AGENT_CONFIG"]))
    # Not by exec: half of what the agent imports is here already, 60 ms of CPU. From the archive as
    # it lies there: to unpack it first takes longer than all the rest.
    sys.path.insert(0, ARCHIVE)
    importlib.import_module("run").start()


if __name__ == "__main__":
    main()
