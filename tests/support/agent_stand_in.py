"""The agent's end of the socket, the staging folder and the control file of one rank; scripted.

For tests of the library alone. Requests are answered by `replies[type]`, a function of the message,
in a thread of the test; everything received is in `messages`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Message = dict[str, object]


class AgentStandIn:
    """Listens from the first moment on; use as a context manager."""

    def __init__(self, folder: Path, *, rank: int = 0) -> None:
        self.folder = folder
        self.staging = folder / "staging" / "attempt-1" / f"rank-{rank}"
        self.staging.mkdir(parents=True)
        self.control = folder / "control"
        self.control.write_bytes(bytes(16))
        self.rank = rank
        self.messages: list[Message] = []
        self.replies: dict[str, Callable[[Message], Message]] = {"room": lambda _: {"ok": True}}
        self.reading = threading.Event()
        self.reading.set()
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        # Bound relative to the folder: the path may be longer than the kernel takes.
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        self._listener.bind(f"/proc/self/fd/{descriptor}/agent.sock")
        os.close(descriptor)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def environment(self, **more: str) -> dict[str, str]:
        """What the agent sets for the process of its rank."""
        return {
            "TRAINRUN_RUN": "digits",
            "TRAINRUN_ATTEMPT": "1",
            "TRAINRUN_SOCKET": str(self.folder / "agent.sock"),
            "TRAINRUN_STAGING": str(self.staging),
            "TRAINRUN_CONTROL": str(self.control),
            "RANK": str(self.rank),
            "WORLD_SIZE": "4",
            **more,
        }

    def of_type(self, kind: str) -> list[Message]:
        """The messages of one type, in order."""
        return [message for message in self.messages if message["type"] == kind]

    def prepare(self, call: int) -> None:
        """Ask for a vote on this call (0: on none)."""
        with open(self.control, "r+b") as file:
            file.write(struct.pack("<Q", call))

    def calls(self) -> int:
        """How often the rank has called `should_save()`."""
        return int(struct.unpack("<QQ", self.control.read_bytes())[1])

    def die(self) -> None:
        """Close everything, as the kernel does for a killed agent."""
        self._listener.close()
        for connection in self._connections:
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def __enter__(self) -> AgentStandIn:
        return self

    def __exit__(self, *_: object) -> None:
        self.reading.set()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in self._lines(lines):
                message = json.loads(line)
                self.messages.append(message)
                answer = self.replies.get(message["type"])
                if answer is not None:
                    reply = json.dumps(answer(message)).encode() + b"\n"
                    with contextlib.suppress(OSError):  # the test has let us die, or the process
                        connection.sendall(reply)

    def _lines(self, lines: IO[bytes]) -> Iterator[bytes]:
        while self.reading.wait():
            try:
                line = lines.readline()
            except OSError:
                return
            if not line:
                return
            yield line
