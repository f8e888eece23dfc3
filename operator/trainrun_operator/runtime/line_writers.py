"""Writers of output lines that never block the run, even if the output is slow or closed.

Layer: runtime, leaf. A terminal or a program may read more slowly than processes print, or not at
all (Ctrl-S, a hung ssh), and a disk may be full. The driver never waits for an output or fails with
it: it drops the oldest lines, except the last ones of each process, and a line in their place says
how many.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TextIO

BACKLOG = 1 << 20
"""Maximum bytes that wait for the reader, not counting lines that are never dropped."""
LAST = 50
"""The last lines of each process, which are never dropped."""
MAX_SPARED = 10_000
"""Maximum number of waiting lines that are never dropped."""
BATCH = 100
"""Maximum number of lines per write."""


class Lines(Protocol):
    """A destination of lines."""

    def line(self, text: str, *, source: str = "") -> None:
        """Write a line; if it has a `source` (the process that printed it), it may be dropped."""


class BlockingWriter:
    """Writes each line before it returns."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self, text: str, *, source: str = "") -> None:  # noqa: ARG002 - as in Lines
        """Write it now. Raises OSError where the stream does."""
        print(text, file=self._stream, flush=True)


class NonBlockingWriter(io.TextIOBase):
    """Replaces a stream and never blocks or fails: it writes from its own thread; `end` waits for
    that thread."""

    def __init__(
        self,
        stream: TextIO,
        *,
        left_out: Callable[[int], str],
        on_problem: Callable[[str], None] = lambda _problem: None,
    ) -> None:
        """`left_out(n)` is the line that replaces n dropped lines; the writing thread calls
        `on_problem` once with the reason why nothing can be written."""
        self._stream = stream
        self._left_out = left_out
        self._on_problem = on_problem
        self.problem = ""
        """Why nothing can be written; empty while it can."""
        self._reported = False
        self._waiting: deque[tuple[bytes, str]] = deque()
        self._lines: Counter[str] = Counter()
        """Number of waiting lines by source."""
        self._size = 0
        self._missing = 0
        """Lines dropped before the waiting ones."""
        self._spared: deque[bytes] = deque()
        """Lines among the dropped ones that must still be written."""
        self._changed = threading.Condition()
        self._writes = False
        self._ends = False
        self._thread = threading.Thread(target=self._write_all, name="lines", daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override] # noqa: D102 - as for every stream
        return self._stream.encoding or "utf-8"

    def fileno(self) -> int:  # noqa: D102
        return self._stream.fileno()

    def isatty(self) -> bool:  # noqa: D102
        return self._stream.isatty()

    def writable(self) -> bool:  # noqa: D102
        return True

    @property
    def behind(self) -> bool:
        """Whether lines wait for their reader."""
        return bool(self._waiting) or self._writes

    def write(self, text: str) -> int:
        """Write it soon."""
        self._put(text, "")
        return len(text)

    def line(self, text: str, *, source: str = "") -> None:
        """Write a line soon."""
        self._put(f"{text}\n", source)

    def end(self, patience: float) -> None:
        """Wait at most `patience` seconds until all lines that were not dropped are written; Ctrl-C
        ends the wait."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        # The run is over: only the reader is left to wait for.
        with suppress(KeyboardInterrupt):
            self._thread.join(patience)

    def _put(self, text: str, source: str) -> None:
        data = text.encode(self.encoding, "replace")
        with self._changed:
            self._waiting.append((data, source))
            self._lines[source] += 1
            self._size += len(data)
            while self._size > BACKLOG and len(self._waiting) > 1:
                self._leave_out(*self._take())
            self._changed.notify()

    def _take(self) -> tuple[bytes, str]:
        data, source = self._waiting.popleft()
        self._lines[source] -= 1
        self._size -= len(data)
        return data, source

    def _leave_out(self, data: bytes, source: str) -> None:
        if source and self._lines[source] >= LAST:
            self._missing += 1
            return
        self._spared.append(data)
        if len(self._spared) > MAX_SPARED:
            self._spared.popleft()
            self._missing += 1

    def _write_all(self) -> None:
        while (batch := self._next()) is not None:
            missing, lines = batch
            gap = [f"{self._left_out(missing)}\n".encode()] if missing else []
            try:
                self._write_now(b"".join([*gap, *lines]))
            except (OSError, ValueError) as error:
                with self._changed:
                    self._missing += missing + len(lines)
                self._has_problem(getattr(error, "strerror", None) or str(error))
            else:
                self.problem = ""

    def _has_problem(self, why: str) -> None:
        first, self.problem = not self._reported, why
        if first:
            self._reported = True
            self._on_problem(why)

    def _write_now(self, data: bytes) -> None:
        try:
            descriptor, rest = self._stream.fileno(), memoryview(data)
        except io.UnsupportedOperation:  # a stream in memory of a program that calls us
            self._stream.write(data.decode(self.encoding))
            return
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:  # another process on the terminal made it non-blocking
                select.select([], [descriptor], [])

    def _next(self) -> tuple[int, list[bytes]] | None:
        """Wait for lines. Returns the number of lines dropped before them, and the lines; None at
        the end."""
        with self._changed:
            self._writes = False
            self._changed.wait_for(lambda: self._waiting or self._ends)
            if not (self._waiting or self._spared or (self._missing and not self.problem)):
                return None
            self._writes = True
            missing, lines = self._missing, list(self._spared)
            self._missing = 0
            self._spared.clear()
            lines += (self._take()[0] for _ in range(min(BATCH, len(self._waiting))))
            return missing, lines


def _not_written(count: int) -> str:
    return f"-- {count:,} lines were dropped here: the output was read too slowly --"


@contextmanager
def non_blocking(
    left_out: Callable[[int], str] = _not_written, *, patience: float = threading.TIMEOUT_MAX
) -> Iterator[None]:
    """Within this context printing never blocks or fails; at its end all is written, or `patience`
    seconds have passed."""
    before = sys.stdout, sys.stderr
    err = NonBlockingWriter(sys.stderr, left_out=_not_written)
    out = NonBlockingWriter(
        sys.stdout,
        left_out=left_out,
        on_problem=lambda why: err.line(f"trainrun: {_lost('stdout', why)}"),
    )
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in (out, err):
            stream.end(patience)


def lines_of_stdout() -> Lines:
    """The writer of stdout; within `non_blocking` it writes in the background."""
    return sys.stdout if isinstance(sys.stdout, NonBlockingWriter) else BlockingWriter(sys.stdout)


def is_behind() -> bool:
    """Whether printed lines wait for their reader, within `non_blocking`."""
    return getattr(sys.stdout, "behind", False)


def problem_of_output() -> str:
    """Why printed lines cannot be written, within `non_blocking`; empty while they can."""
    problems = ((name, getattr(getattr(sys, name), "problem", "")) for name in ("stdout", "stderr"))
    return next((_lost(name, why) for name, why in problems if why), "")


def _lost(name: str, why: str) -> str:
    return (
        f"{name} cannot be written: {why}. The training continues, and each worker's output.log "
        "has all its lines"
    )


def left_out(count: int) -> str:
    """The line that replaces `count` dropped lines."""
    return (
        f"-- {count:,} lines of the processes are missing here: the output was read too slowly. "
        "Each worker's output.log has them all; `trainrun logs` shows the last ones --"
    )


def source_of(worker: str, line: str) -> str:
    """The process that printed a worker's line; its rank is in brackets at the start."""
    return f"{worker} {line.partition(']')[0] if line.startswith('[') else ''}"
