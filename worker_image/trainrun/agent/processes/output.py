"""The output of the training processes: copied to ours, with its last lines and exceptions.

Layer: agent. Output is copied line by line, with rank prefixes. A thread writes it, so that the
agent keeps running if the reader of our output stalls; the agent then stops reading the pipes and
the training waits, as it would without an agent.

The last lines are stored when the attempt has ended. Until then they are in memory, not on a disk:
an agent lives as long as its pod, so a file would outlive nothing, and a hanging disk would stop
the agent. Bounded in lines and in bytes.

The exception in the output is used if the process could not report it itself (it never imported
trainrun, or the interpreter did not even start). Formats differ: PyTorch puts its rank before each
line, a logger the time, rich draws a box, a progress bar precedes the first line. The last
traceback explains the end of a process, unless it comes from a thread, a destructor or a launcher
and another one came before.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import os
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from trainrun._common.text import without_escapes

READ_SIZE = 65536
LONGEST_LINE = 65536
"""Longer lines are copied in pieces."""
BAR_INTERVAL = 10.0
"""Seconds between two copied states of a progress bar that rewrites its line."""
BACKLOG_BYTES = 4 << 20
"""Unwritten output above which the agent stops reading the pipes."""

MOST_LINES = 2000
"""Lines kept of a process."""
MOST_BYTES = 512 << 10
"""Characters kept of a process."""
LONGEST_KEPT = 4096
"""Characters kept of a line."""
CUT = " ..."
"""Appended to a line that was cut."""
SEARCHED = 200
"""Last lines that are searched for errors of python itself."""
REPORTED_LINES = 20
REPORTED_WIDTH = 400
"""Bounds of `ProcessExit.last_lines`."""
EXCEPTION_WIDTH = 1000
"""Characters kept of an exception."""

NOT_STARTED = re.compile(
    r"^\S*python[\d.]*: (can't open file .*|can't find '__main__' module in .*|"
    r"No module named .*|Error while finding module specification for .*)$"
)
"""Python's own error when it has no program to run."""

FORGOTTEN = 500
"""Lines after which an exception no longer explains the end of the process."""
STRAYS = 20
"""Maximum foreign lines within one traceback."""
LONGEST_FRAME = 4096
"""Maximum characters of a frame's line."""

_HEADER = re.compile(
    r"(?P<prefix>.*?)(?P<group>\+ Exception Group )?(?:╭─+ )?(?:Original )?"
    r"Traceback \(most recent call last\)(?::| ?─*╮)\s*$"
)
_FRAME = re.compile(r"(?P<prefix>.*?)  File \".+\", line \d+(?P<place>, in .+)?$")
_RANK = re.compile(r"\[rank\d+\]: ?")
_BAR = re.compile(r"[^|]*\d%\|[^|]*\| ?\S+ \[[^\]]*\]")
"""One state of a progress bar of tqdm."""
_EXCEPTION = re.compile(r"(?:[A-Za-z_<][\w<>]*\.)*(?:_*[A-Z]\w*|\w*error|timeout)(?::|$)")
_SYNTAX = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
"""Errors in the script itself, which Python prints without a traceback header."""
_SURVIVED = re.compile(r"Exception ignored |--- Logging error|Task exception was never retrieved")
"""Precedes the traceback of an exception that did not end the process."""
_ASIDE = re.compile(r"Exception in thread |Process \S+:$|Error in (?:atexit|sys\.excepthook)")
_REPORTER = re.compile(r"[\w.]*(?:ChildFailedError|CalledProcessError|ProcessExitedException)\b")
"""A launcher's exception, which only reports that a process it started has failed."""


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
        """Queue whole lines; never waits."""
        with self._lock:
            self._unwritten += len(data)
        self._queue.put(data)

    def close(self, timeout: float, *, longest: float = 60.0) -> None:
        """Write the rest; give up after `timeout` seconds without any read, and in any case after
        `longest` seconds."""
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
                    broken = True  # the reader is gone: training continues without output
            self._is_written(len(rest))

    def _is_written(self, size: int) -> None:
        with self._lock:
            self._unwritten -= size


class SinkHandler(logging.Handler):
    """Writes the agent's own log lines between those of the training."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self.setFormatter(logging.Formatter("[agent] %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self._sink.write(self.format(record).encode(errors="replace") + b"\n")


class OutputPump:
    """Reads one process's output pipe."""

    def __init__(
        self, fd: int, prefix: str, sink: Sink, tap: Callable[[bytes], None] | None = None
    ) -> None:
        """`tap` is called with each piece that was read."""
        self.tail: Final = Tail()
        """The last copied lines."""
        self._tap = tap
        self._fd = fd
        self._prefix = prefix.encode()
        self._sink = sink
        self._partial = b""
        self._bar_copied_at = -math.inf
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._readable)

    def finish(self) -> None:
        """Read what the ended process left in the pipe, then close it.

        Does not wait for end of file: a grandchild may keep the other side open, or write as fast
        as we read. One full pipe is enough to include the process's last output.
        """
        left = fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ) if self._fd >= 0 else 0
        while self._fd >= 0 and left > 0 and (found := self._read()):
            left -= found
        if self._partial:
            self._pass_on([self._partial])
        self._close()

    def _readable(self) -> None:
        if self._sink.full:
            # Try again later; until then the pipe fills up and the process waits.
            self._loop.remove_reader(self._fd)
            self._loop.call_later(0.1, self._resume)
        else:
            self._read()

    def _resume(self) -> None:
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._readable)

    def _read(self) -> int:
        """Read the available output; returns the number of bytes."""
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return 0
        if not data:
            self._close()
            return 0
        if self._tap is not None:
            self._tap(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._pass_on(lines)
        if b"\r" in self._partial:
            self._show_bar()
        if len(self._partial) > LONGEST_LINE:
            self._pass_on([self._partial])
            self._partial = b""
        return len(data)

    def _show_bar(self) -> None:
        """A progress bar rewrites its line and may not end it for hours: copy its last complete
        state now and then."""
        line = self._partial.rstrip(b"\r")
        before, _, unfinished = line.rpartition(b"\r")
        state, end = before.rpartition(b"\r")[2], self._partial[len(line) :]
        self.tail.redrawn(before.decode(errors="replace"))
        self._partial = unfinished + end
        if time.monotonic() - self._bar_copied_at >= BAR_INTERVAL and state.strip():
            self._bar_copied_at = time.monotonic()
            self.tail.add(self._bar_copied_at, state.decode(errors="replace"), bar=True)
            self._sink.write(self._prefix + state + b"\n")

    def _pass_on(self, lines: list[bytes]) -> None:
        copied = []
        now = time.monotonic()
        for line in lines:
            # A progress bar rewrites its line with carriage returns: copy only its last state.
            states, _, text = line.rstrip(b"\r").rpartition(b"\r")
            if states:
                self.tail.redrawn(states.decode(errors="replace"))
            copied.append(self._prefix + text + b"\n")
            self.tail.add(now, text.decode(errors="replace"))
        if copied:
            self._sink.write(b"".join(copied))

    def _close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


class Tail:
    """Keeps the last lines, each with its arrival time."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str, bool]] = deque()
        self._size = 0
        self._tracebacks = Tracebacks()
        self.seen = 0
        """Lines so far."""

    def add(self, moment: float, line: str, *, bar: bool = False) -> None:
        """Keep one line, without its line end, or a state of a `bar` that may be redrawn."""
        if not bar:  # `redrawn` has searched it
            self._tracebacks.add(line)
        if len(line) > LONGEST_KEPT:
            line = line[: LONGEST_KEPT - len(CUT)] + CUT
        self._lines.append((moment, line, bar))
        self._size += len(line) + 1
        self.seen += 1
        while len(self._lines) > MOST_LINES or self._size > MOST_BYTES:
            _, gone, _ = self._lines.popleft()
            self._size -= len(gone) + 1

    def redrawn(self, states: str) -> None:
        """Search states that a progress bar has replaced, without keeping them."""
        for state in states.split("\r"):
            self._tracebacks.add(state)

    def last(self, most: int) -> list[tuple[float, str]]:
        """The last lines, at most `most`."""
        return [(at, line) for at, line, _ in list(self._lines)[-most:]] if most else []

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last non-empty lines without bars, within the bounds of `ProcessExit.last_lines`."""
        whole = (line for _, line, bar in reversed(self._lines) if line.strip() and not bar)
        return tuple(line[:REPORTED_WIDTH] for line in islice(whole, REPORTED_LINES))[::-1]

    @property
    def exception(self) -> str:
        """The exception that ended the process, according to its output: `ValueError: text`, or
        `StartFailed: ...` if python did not run; empty: none found."""
        lines = (line for _, line in self.last(SEARCHED))
        failed = (f"StartFailed: {line}" for line in lines if NOT_STARTED.match(line))
        return (self._tracebacks.exception or next(failed, ""))[:EXCEPTION_WIDTH]


class Tracebacks:
    """Reads the lines of one process and finds the exception that best explains its end."""

    def __init__(self) -> None:
        self._found = ""
        self._found_at = 0
        self._aside = False
        """The found exception may not explain the end: a later one may replace it."""
        self._count = 0
        self._before: Final = ["", ""]
        """The last two lines."""
        self._inside = False
        self._goes_on = False
        """The exception's text may have more lines, which PyTorch marks with the rank."""
        self._strays = 0
        self._prefix: re.Pattern[str] | None = None
        """The prefix of each line of this traceback."""
        self._end = _EXCEPTION
        """Matches the beginning of this traceback's last line."""
        self._weak = self._ignored = self._group = False
        """This traceback is from a thread or the like, of a survived exception, of a group."""

    @property
    def exception(self) -> str:
        """`ValueError: text`; empty: none found, or too many lines ago."""
        return self._found if self._count - self._found_at <= FORGOTTEN else ""

    def add(self, line: str) -> None:
        """Read the next line, or the next state of a line that is redrawn."""
        self._count += 1
        if self._inside or self._goes_on or "Traceback" in line or "  File " in line:
            self._read(without_escapes(line).rstrip())
        self._before[0], self._before[1] = self._before[1], line

    def _read(self, line: str) -> None:
        goes_on, self._goes_on = self._goes_on, False
        header = _HEADER.fullmatch(line) if "Traceback" in line else None
        if header is not None and not (self._group and header["prefix"].endswith("| ")):
            self._begin(header)
        elif len(line) <= LONGEST_FRAME and (frame := _FRAME.match(line)) is not None:
            self._frame(frame)
        elif self._inside and header is None:
            self._next(line)
        elif goes_on and (rank := _RANK.match(line)) is not None and not line.endswith(rank[0]):
            self._found, self._goes_on = f"{self._found}\n{line[rank.end() :]}", True

    def _begin(self, header: re.Match[str]) -> None:
        self._inside, self._strays, self._end = True, 0, _EXCEPTION
        self._prefix = _shape(header["prefix"])
        self._group = header["group"] is not None
        self._ignored = any(map(_SURVIVED.search, self._before))
        self._weak = any(map(_ASIDE.search, self._before))

    def _frame(self, frame: re.Match[str]) -> None:
        if not self._inside:
            if self._found_at and self._count - self._found_at <= len(self._before):
                self._inside = True  # the assumed last line came from another writer
            elif frame["place"] is None:
                self._inside, self._end = True, _SYNTAX
                self._weak = self._ignored = self._group = False
        self._strays = 0
        self._prefix = _shape(frame["prefix"])

    def _next(self, printed: str) -> None:
        line = self._bare(printed)
        if not line or line[0] in " \t│╭╰":
            return
        if self._end.match(line) is None:
            self._strays += 1
            self._inside = self._strays <= STRAYS
            return
        self._inside = False
        weak = self._weak or _REPORTER.match(line) is not None
        if not self._ignored and (not weak or self._aside or not self.exception):
            self._found, self._found_at, self._aside = line, self._count, weak
            self._goes_on = _RANK.match(printed) is not None and not self._group

    def _bare(self, line: str) -> str:
        """The line without the traceback's prefix or a preceding progress bar."""
        for before in (self._prefix, _RANK, _BAR):
            if before is not None and (found := before.match(line)) is not None:
                line = line[found.end() :]
        return line


def _shape(prefix: str) -> re.Pattern[str] | None:
    """Matches prefixes that differ from this one only in numbers, such as times."""
    if not prefix:
        return None
    return re.compile(r"\d+".join(map(re.escape, re.split(r"\d+", prefix))))
