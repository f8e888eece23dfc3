"""The process's side of its agent's socket: newline-delimited JSON.

Invariants: `send` never waits and never raises, even if the agent exits; replies come in the order
of the requests; messages sent while the socket is full or held back go out with a later call, in
order, the oldest dropped first. A signal handler of the script may raise at any moment: that may
lose the current message, but never sends one twice or mixes up replies. Therefore values that must
change together form one tuple, and the result of a socket call is stored by a function written in
C, in which no handler runs.
"""

from __future__ import annotations

import math
import select
import socket
import threading
from collections import deque
from pathlib import Path
from typing import TypeVar

from trainrun.contract import messages, questions
from trainrun.contract.local_files import reachable_socket
from trainrun.contract.questions import Failed
from trainrun.errors import AgentLost, AgentRefused

KEPT = 4096
"""Messages kept while the socket is full (its buffer holds about a thousand), or held back while
another thread copies a checkpoint: the steps of some minutes."""

FLUSH_SECONDS = 1.0
"""How long a process that ends waits for its last messages to go out."""

WAIT_FOREVER = math.inf

R = TypeVar("R")

_WORKING = messages.line_of(messages.Working()).encode() + b"\n"

_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class Connection:
    """One stream to the agent, shared by the threads of this process."""

    def __init__(self, path: str, hello: messages.Hello) -> None:
        """Connect and say hello. Raises AgentLost."""
        self._path = path
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._unsent: deque[bytes] = deque(maxlen=KEPT)
        # The next message, which is never dropped; the bytes of it sent, call by call; and the
        # number of requests begun.
        self._begun: tuple[bytes, list[int], int] = (b"", [], 0)
        # Received but unread pieces, and the number of replies read.
        self._received: tuple[list[bytes], int] = ([], 0)
        self._held = False
        self._lost = ""
        try:
            self._socket = _connect(path)
        except OSError as error:
            raise AgentLost(_lost(path, error)) from error
        self.send(messages.line_of(hello))

    def send(self, line: str) -> None:
        """Send a message now or with a later call; never waits."""
        with self._sending:
            self._unsent.append(line.encode() + b"\n")
            if not self._held:
                self._write(wait=0.0)
            elif self._finish_message(0.0):
                self._begin(_WORKING)  # otherwise a running training would look hung
                self._finish_message(0.0)

    def send_surely(self, line: str, *, wait: float = WAIT_FOREVER) -> bool:
        """Send a message that must not be dropped, after all earlier ones; wait for room.

        The wait ends after `wait` seconds or when the agent exits. Returns whether it was sent.
        """
        with self._sending:
            return self._send_next(line, wait, requests=0)

    def flush(self) -> None:
        """Wait a moment for the last messages of an exiting process to go out."""
        with self._sending:
            self._write(wait=FLUSH_SECONDS)

    def ask(self, request: questions.Question[R]) -> R:
        """Send a request and wait for its reply.

        Raises AgentRefused with the agent's reason, and AgentLost.
        """
        with self._asking:
            with self._sending:
                sent = self._send_next(messages.line_of(request), WAIT_FOREVER, requests=1)
            if not sent:
                raise AgentLost(self._lost)
            line = self._newest_reply()
        try:
            reply = messages.parse_reply(line, request)
        except messages.MalformedLine as error:
            raise AgentRefused(str(error)) from error
        if isinstance(reply, Failed):
            raise AgentRefused(reply.error, kind=reply.kind)
        return reply

    def hold_back(self) -> None:
        """Hold back messages that other threads `send`, until `let_go`."""
        with self._sending:
            self._held = True

    def let_go(self) -> None:
        """Send the messages that were held back."""
        with self._sending:
            self._held = False
            self._write(wait=0.0)

    def close(self) -> None:
        """Close the stream; unsent messages are lost."""
        self._socket.close()

    def _send_next(self, line: str, wait: float, *, requests: int) -> bool:
        self._finish_message(wait)
        if not self._held:
            self._write(wait=wait)
        self._begin(self._rest() + line.encode() + b"\n", requests=requests)
        return self._finish_message(wait)

    def _write(self, *, wait: float) -> None:
        """Write the stored messages, as many as the socket accepts within `wait` seconds."""
        while self._finish_message(wait) and self._unsent:
            self._begin(self._unsent.popleft())

    def _begin(self, message: bytes, *, requests: int = 0) -> None:
        self._begun = (message, [], self._begun[2] + requests)

    def _rest(self) -> bytes:
        message, sent, _ = self._begun
        return message[sum(sent) :]

    def _finish_message(self, wait: float) -> bool:
        """Write the rest of the current message; return whether it is sent completely."""
        while not self._lost and (rest := self._rest()):
            try:
                self._begun[1].extend(map(self._socket.send, (rest,), (_AT_ONCE,)))
            except BlockingIOError:
                if wait <= 0 or not self._has(select.POLLOUT, wait):
                    return False
            except OSError as error:
                self._lost = _lost(self._path, error)
        return not self._lost

    def _has(self, what: int, wait: float) -> bool:
        # A timeout of the socket would also affect a thread that waits for a reply, and select
        # refuses descriptors from 1024 on.
        poll = select.poll()
        poll.register(self._socket, what)
        return bool(poll.poll(None if wait == WAIT_FOREVER else wait * 1000))

    def _newest_reply(self) -> bytes:
        # Skip the replies of interrupted callers.
        line = self._read_reply()
        while self._received[1] < self._begun[2]:
            line = self._read_reply()
        return line

    def _read_reply(self) -> bytes:
        pieces, read = self._received
        while not any(b"\n" in piece for piece in pieces):
            try:
                pieces.extend(map(self._socket.recv, (65536,)))
            except OSError as error:
                raise self._mark_lost(error) from error
            if not pieces[-1]:
                raise self._mark_lost(None)
        line, rest = b"".join(pieces).split(b"\n", 1)
        self._received = ([rest], read + 1)
        return line

    def _mark_lost(self, error: OSError | None) -> AgentLost:
        self._lost = _lost(self._path, error)
        return AgentLost(self._lost)


def _connect(path: str) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with reachable_socket(Path(path)) as name:
            stream.connect(name)
    except OSError:
        stream.close()
        raise
    return stream


def _lost(path: str, error: OSError | None) -> str:
    reason = error.strerror or str(error) if error else "it closed the connection"
    return (
        f"the agent of this worker has exited (socket {path}: {reason}); its processes end with "
        "it, and the operator replaces the worker. See the agent's log for the reason"
    )
