"""The output of the training processes: through to ours, line by line, with rank prefixes.

Layer: agent. A thread writes, so that a reader of our output who stops reading does not stop the
agent; then the pipes are not read any further and the training waits, as it would without us.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import os
import queue
import threading
import time
from typing import Final

from trainrun.agent.processes.tail import Tail

READ_SIZE = 65536
LONGEST_LINE = 65536
"""A line that grows longer is passed through in pieces."""
BAR_INTERVAL = 10.0
"""Seconds between two states of a progress bar that rewrites its line."""
BACKLOG_BYTES = 4 << 20
"""Output not yet written at which pipes are no longer read."""


class Sink:
    """Writes to one file descriptor from a thread of its own."""

    def __init__(self, fd: int) -> None:
        self._fd: Final = fd
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unwritten = 0
        self._thread = threading.Thread(target=self._write_all, name="output", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """The reader of our output is behind."""
        return self._unwritten > BACKLOG_BYTES

    def write(self, data: bytes) -> None:
        """Hand over whole lines; never waits."""
        with self._lock:
            self._unwritten += len(data)
        self._queue.put(data)

    def close(self, timeout: float, *, longest: float = 60.0) -> None:
        """Write what is left; give up after `timeout` seconds in which nobody has read anything,
        and after the `longest` time in any case."""
        self._queue.put(None)
        deadline, before = time.monotonic() + longest, -1
        while self._thread.is_alive() and self._unwritten != before:
            before = self._unwritten
            self._thread.join(min(timeout, max(0.0, deadline - time.monotonic())))

    def _write_all(self) -> None:
        broken = False
        while (data := self._queue.get()) is not None:
            rest = memoryview(data)
            while rest and not broken:
                try:
                    self._is_written(written := os.write(self._fd, rest))
                    rest = rest[written:]
                except OSError:
                    broken = True  # nobody reads any more: training goes on without
            self._is_written(len(rest))

    def _is_written(self, size: int) -> None:
        with self._lock:
            self._unwritten -= size


class SinkHandler(logging.Handler):
    """Puts the agent's own log lines between those of the training."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self.setFormatter(logging.Formatter("[agent] %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self._sink.write(self.format(record).encode(errors="replace") + b"\n")


class OutputPump:
    """Reads one process's output pipe."""

    def __init__(self, fd: int, prefix: str, sink: Sink) -> None:
        self.tail: Final = Tail()
        """What was shown of it last."""
        self._fd = fd
        self._prefix = prefix.encode()
        self._sink = sink
        self._partial = b""
        self._bar_shown = -math.inf
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._readable)

    def finish(self) -> None:
        """Read what the ended process left in the pipe, then close it.

        Does not wait for its end: a grandchild may hold the other side open for ever, or write as
        fast as it is read. What the process wrote last is no further away than a full pipe.
        """
        left = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ) if self._fd >= 0 else 0
        while self._fd >= 0 and left > 0 and (found := self._read()):
            left -= found
        if self._partial:
            self._pass_on([self._partial])
        self._close()

    def _readable(self) -> None:
        if self._sink.full:
            # Look again later; until then the pipe fills and the process waits.
            self._loop.remove_reader(self._fd)
            self._loop.call_later(0.1, self._resume)
        else:
            self._read()

    def _resume(self) -> None:
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._readable)

    def _read(self) -> int:
        """Take in what is there; the number of bytes."""
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return 0
        if not data:
            self._close()
            return 0
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._pass_on(lines)
        if b"\r" in self._partial:
            self._show_bar()
        if len(self._partial) > LONGEST_LINE:
            self._pass_on([self._partial])
            self._partial = b""
        return len(data)

    def _show_bar(self) -> None:
        """A progress bar rewrites its line and may not end it for hours: show a state of it now and
        then, the last one that is whole."""
        line = self._partial.rstrip(b"\r")
        before, _, unfinished = line.rpartition(b"\r")
        state, end = before.rpartition(b"\r")[2], self._partial[len(line) :]
        self.tail.redrawn(before.decode(errors="replace"))
        self._partial = unfinished + end
        if time.monotonic() - self._bar_shown >= BAR_INTERVAL and state.strip():
            self._bar_shown = time.monotonic()
            self.tail.add(self._bar_shown, state.decode(errors="replace"), bar=True)
            self._sink.write(self._prefix + state + b"\n")

    def _pass_on(self, lines: list[bytes]) -> None:
        shown = []
        now = time.monotonic()
        for line in lines:
            # A progress bar rewrites its line with carriage returns: keep its last state.
            states, _, text = line.rstrip(b"\r").rpartition(b"\r")
            if states:
                self.tail.redrawn(states.decode(errors="replace"))
            shown.append(self._prefix + text + b"\n")
            self.tail.add(now, text.decode(errors="replace"))
        if shown:
            self._sink.write(b"".join(shown))

    def _close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
