"""A proxy that makes an S3 server one of a cloud: slow per connection, with a late first byte.

    python -m benchmarks.slow_store PORT MEGABYTES_PER_SECOND SECONDS

It runs in a process of its own and prints its port. Bytes pass through the kernel only (splice), so
that it takes little of the machine that is measured. Layer: benchmarks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

PIECE = 1 << 18
"""Bytes passed on at a time."""


class Connection:
    """One connection of a client, and ours to the server."""

    def __init__(self, client: socket.socket, port: int, rate: float, delay: float) -> None:
        self.client = client
        self.server = socket.create_connection(("127.0.0.1", port))
        self.rate = rate
        self.delay = delay
        self.first_byte = 0.0
        """When the answer to the last request may begin."""

    def requests(self) -> None:
        with self._closing():
            while data := self.client.recv(PIECE):
                self.first_byte = time.monotonic() + self.delay
                self.server.sendall(data)

    def answers(self) -> None:
        out, into = os.pipe()
        fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIECE)
        due = 0.0
        with self._closing():
            while count := os.splice(self.server.fileno(), into, PIECE):
                due = max(due, self.first_byte, time.monotonic() - 0.1)
                time.sleep(max(0.0, due - time.monotonic()))
                due += count / self.rate
                while count:
                    count -= os.splice(out, self.client.fileno(), count)
        os.close(out)
        os.close(into)

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        with contextlib.suppress(OSError, ValueError):
            yield
        for each in (self.client, self.server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def serve(port: int, rate: float, delay: float) -> None:
    """Forward to a port for ever."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    while True:
        client, _ = listener.accept()
        connection = Connection(client, port, rate, delay)
        for work in (connection.requests, connection.answers):
            threading.Thread(target=work, daemon=True).start()


@contextlib.contextmanager
def slow_store(port: int, *, rate: float, delay: float) -> Iterator[str]:
    """Run one before the server at `port`, with `rate` in bytes per second; its address."""
    command = [sys.executable, "-m", "benchmarks.slow_store", str(port), str(rate), str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
