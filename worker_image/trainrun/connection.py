"""The process's end of its agent's socket: newline-delimited JSON.

Invariants: `send` never waits and never raises, whatever becomes of the agent; replies come in the
order of the requests; what is sent while the socket is full or held back goes out with a later
call, in order, the oldest dropped first.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from trainrun.errors import AgentLost, AgentRefused

KEPT = 64
"""Messages kept while the socket is full (a socket buffer itself holds about a thousand)."""

FLUSH_SECONDS = 1.0
"""How long a process that ends waits for its last messages to go out."""

WAIT_FOREVER = math.inf

Message = Mapping[str, object]

_AT_ONCE = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
"""A message as the line that is sent."""


class Connection:
    """One stream to the agent, shared by the threads of this process."""

    def __init__(self, path: str, hello: Message) -> None:
        """Connect and say hello. Raises AgentLost."""
        self._path = path
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._unsent: deque[bytes] = deque(maxlen=KEPT)
        self._rest = b""  # of a message whose first part is out: must come next, is never dropped
        self._held = False
        self._owed = 0  # replies to come, those that nobody waits for any more included
        self._received = b""
        self._lost = ""
        try:
            self._socket = _connect(path)
        except OSError as error:
            raise AgentLost(_lost(path, error)) from error
        self.send(encode(hello))

    def send(self, line: str) -> None:
        """Send a message that nobody waits for, now or with a later call."""
        with self._sending:
            self._unsent.append(line.encode() + b"\n")
            if not self._held:
                self._write(wait=0.0)

    def send_surely(self, line: str, *, wait: float = WAIT_FOREVER) -> bool:
        """Send a message that must not be dropped, after all earlier ones; wait for room.

        The wait ends after `wait` seconds or when the agent has gone. Returns whether it went out.
        """
        with self._sending:
            self._finish_message(wait)
            if not self._held:
                self._write(wait=wait)
            self._rest += line.encode() + b"\n"
            return self._finish_message(wait)

    def flush(self) -> None:
        """Give the last messages of a process that ends a moment to go out."""
        with self._sending:
            self._write(wait=FLUSH_SECONDS)

    def ask(self, message: Message) -> dict[str, object]:
        """Send a request and wait for its reply.

        Raises AgentRefused with the agent's reason, and AgentLost.
        """
        with self._asking:
            # Counted first: an interrupted caller leaves a reply behind that must be skipped.
            self._owed += 1
            if not self.send_surely(encode(message)):
                raise AgentLost(self._lost)
            reply = self._newest_reply()
        if "error" in reply:
            raise AgentRefused(str(reply["error"]))
        return reply

    def hold_back(self) -> None:
        """Keep back what other threads `send` from now on, until `let_go`."""
        with self._sending:
            self._held = True

    def let_go(self) -> None:
        """Send what was held back."""
        with self._sending:
            self._held = False
            self._write(wait=0.0)

    def close(self) -> None:
        """Close the stream; what is unsent is lost."""
        self._socket.close()

    def _write(self, *, wait: float) -> None:
        """Write the kept messages, as far as the socket takes them within `wait` seconds."""
        while self._finish_message(wait) and self._unsent:
            self._rest = self._unsent.popleft()

    def _finish_message(self, wait: float) -> bool:
        """Write the rest of the message that has been begun; return whether all of it is out."""
        while self._rest and not self._lost:
            try:
                sent = self._socket.send(self._rest, _AT_ONCE)
            except BlockingIOError:
                if not self._has_room(wait):
                    return False
            except OSError as error:
                self._lost = _lost(self._path, error)
            else:
                self._rest = self._rest[sent:]
        return not self._lost

    def _has_room(self, wait: float) -> bool:
        # Not by a timeout of the socket: that would also hit a thread that waits for a reply.
        if wait <= 0:
            return False
        timeout = None if wait == WAIT_FOREVER else wait
        return bool(select.select([], [self._socket], [], timeout)[1])

    def _newest_reply(self) -> dict[str, object]:
        while True:
            reply = self._read_line()
            self._owed -= 1
            if self._owed == 0:
                return reply

    def _read_line(self) -> dict[str, object]:
        while b"\n" not in self._received:
            try:
                data = self._socket.recv(65536)
            except OSError as error:
                raise self._mark_lost(error) from error
            if not data:
                raise self._mark_lost(None)
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        reply = json.loads(line)
        if not isinstance(reply, dict):
            raise AgentRefused(f"the agent answered {reply!r:.80}, which is not an object")
        return reply

    def _mark_lost(self, error: OSError | None) -> AgentLost:
        self._lost = _lost(self._path, error)
        return AgentLost(self._lost)


def _connect(path: str) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The kernel takes 107 bytes; a folder of any depth is reached through its descriptor.
    folder = -1
    try:
        if len(os.fsencode(path)) > 107:
            folder = os.open(Path(path).parent, os.O_PATH | os.O_DIRECTORY)
            path = f"/proc/self/fd/{folder}/{Path(path).name}"
        stream.connect(path)
    except OSError:
        stream.close()
        raise
    finally:
        if folder >= 0:
            os.close(folder)
    return stream


def _lost(path: str, error: OSError | None) -> str:
    reason = error.strerror or str(error) if error else "it closed the connection"
    return (
        f"the agent of this worker has gone (socket {path}: {reason}); it ends its processes when "
        "it goes, and the operator replaces the worker: see the agent's log for why"
    )
