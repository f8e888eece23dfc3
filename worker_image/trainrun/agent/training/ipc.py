"""The socket through which the processes of one attempt talk to the agent.

Layer: agent. Invariants: statements are handled as soon as they are read; requests of one
connection are answered in order; when a process has ended, `drain` reads its last messages before
its end is reported. Cheap: a thousand reports a second cost about one per cent of a core.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

from trainrun.agent import background
from trainrun.contract.local_files import reachable_socket
from trainrun.contract.messages import Hello, MalformedLine, Statement, parse
from trainrun.contract.questions import Reply, Request, reply_line

LOG = logging.getLogger("trainrun.agent")

READ_SIZE = 1 << 18
BACKLOG = 256
BURST = 0.01
"""A process that sends faster is read only once in this many seconds: a wake-up costs ten times as
much as a report."""


class IpcServer:
    """Listens on a unix socket."""

    def __init__(
        self,
        path: Path,
        ranks: tuple[int, ...],
        *,
        statement: Callable[[int, Statement], None],
        request: Callable[[int, Request], Awaitable[Reply]],
        hello: Callable[[Hello], None] = lambda _hello: None,
    ) -> None:
        """`statement` and `request` are called with the sender's rank, `hello` with each hello of
        our processes. An exception from `request` is a bug; errors for the user are `Failed`
        replies."""
        self.ranks = ranks
        self.statement, self.request, self.hello = statement, request, hello
        self.connections: set[ProcessStream] = set()
        self._path = path
        self._loop = asyncio.get_running_loop()
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with reachable_socket(path) as name:
            self._socket.bind(name)
        self._socket.listen(BACKLOG)
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def drain(self) -> None:
        """Read everything that processes have sent until now."""
        self._accept()
        for connection in list(self.connections):
            connection.read()

    def close(self) -> None:
        """Close all connections; their unanswered requests stay unanswered."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._path.unlink(missing_ok=True)
        for connection in list(self.connections):
            connection.close()

    def _accept(self) -> None:
        while self._socket.fileno() >= 0:
            try:
                stream, _ = self._socket.accept()
            except BlockingIOError:
                return
            self.connections.add(ProcessStream(stream, self))


class ProcessStream:
    """One process's stream."""

    def __init__(self, stream: socket.socket, server: IpcServer) -> None:
        stream.setblocking(False)  # noqa: FBT003 - takes no keyword
        self._stream = stream
        self._server = server
        self._rank: int | None = None
        self._partial = b""
        self._requests: deque[Request] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._woken = 0.0
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(stream.fileno(), self.readable)

    def readable(self) -> None:
        """Data has arrived."""
        before, self._woken = self._woken, self._loop.time()
        self.read()
        if self._woken - before < BURST and self._stream.fileno() >= 0:
            self._loop.remove_reader(self._stream.fileno())
            self._loop.call_later(BURST, self._listen_again)

    def _listen_again(self) -> None:
        if self._stream.fileno() >= 0:
            self._loop.add_reader(self._stream.fileno(), self.readable)

    def read(self) -> None:
        """Handle everything that has arrived."""
        while self._stream.fileno() >= 0:
            try:
                data = self._stream.recv(READ_SIZE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                self._handle(line)

    def close(self) -> None:
        """Close the stream and forget its requests."""
        if self._stream.fileno() < 0:
            return
        self._loop.remove_reader(self._stream.fileno())
        self._stream.close()
        if self._answering is not None:
            self._answering.cancel()
        self._server.connections.discard(self)

    def _handle(self, line: bytes) -> None:
        try:
            message = parse(line)
        except MalformedLine as error:
            LOG.warning("rank %s: %s", self._rank, error)
            return
        if message is None:
            return
        if isinstance(message, Hello):
            self._introduce(message)
        elif self._rank is None:
            LOG.warning("ignored a message before hello from an unknown process: %r", message)
        elif isinstance(message, Request):
            self._requests.append(message)
            if self._answering is None:
                self._answering = background.run(self._answer(self._rank))
        else:
            self._server.statement(self._rank, message)

    def _introduce(self, hello: Hello) -> None:
        if hello.rank in self._server.ranks:
            self._rank = hello.rank
            self._server.hello(hello)
        else:
            # A foreign process, or one that changed RANK: it must not report for our ranks.
            LOG.warning(
                "process %d claims rank %d, which is not on this worker", hello.pid, hello.rank
            )
            self.close()

    async def _answer(self, rank: int) -> None:
        while self._requests:
            reply = await self._server.request(rank, self._requests.popleft())
            self._send(reply_line(reply).encode() + b"\n")
        self._answering = None
        self._listen_again()  # a process that waited for a reply is read at once

    def _send(self, line: bytes) -> None:
        try:
            self._stream.send(line, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            LOG.warning("rank %s does not read its replies", self._rank)
            self.close()
        except OSError:
            self.close()  # it ended before the reply
