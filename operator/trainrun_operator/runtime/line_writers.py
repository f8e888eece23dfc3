"""Lines for whoever reads our output: at once, and no harm if nobody does any more.

Layer: runtime, leaf. A terminal or a program may read more slowly than processes print, or not at
all (Ctrl-S, a hung ssh), and a disk may be full. Nothing that leads waits for an output or fails
with it: the oldest lines are left out, but for the last ones of each process, and the place says
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
"""Bytes that wait for their reader, at most, besides what is never left out."""
LAST = 50
"""Lines of each process that are never left out: the last ones."""
MAX_SPARED = 10_000
"""Lines that wait because they are never left out, at most."""
BATCH = 100
"""Lines that are written at once, at most."""


class Lines(Protocol):
    """Where lines go."""

    def line(self, text: str, *, source: str = "") -> None:
        """Write it; where it has a `source`, the process that printed it, it may be left out."""


class BlockingWriter:
    """Writes each line before it returns."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self, text: str, *, source: str = "") -> None:  # noqa: ARG002 - as in Lines
        """Write it now. Raises OSError where the stream does."""
        print(text, file=self._stream, flush=True)


class NonBlockingWriter(io.TextIOBase):
    """Stands for a stream and never waits nor fails: writes from a thread of its own, which `end`
    waits for."""

    def __init__(
        self,
        stream: TextIO,
        *,
        left_out: Callable[[int], str],
        on_problem: Callable[[str], None] = lambda _problem: None,
    ) -> None:
        """`left_out` is the line that stands in the place of so many lines; `on_problem` is told
        once, by the thread that writes, why nothing can be written."""
        self._stream = stream
        self._left_out = left_out
        self._on_problem = on_problem
        self.problem = ""
        """Why nothing can be written; empty while it can."""
        self._reported = False
        self._waiting: deque[tuple[bytes, str]] = deque()
        self._lines: Counter[str] = Counter()
        """By source, how many wait."""
        self._size = 0
        self._missing = 0
        """Lines left out before those that wait."""
        self._spared: deque[bytes] = deque()
        """Lines from between them."""
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
        """Something waits for its reader."""
        return bool(self._waiting) or self._writes

    def write(self, text: str) -> int:
        """Write it soon."""
        self._put(text, "")
        return len(text)

    def line(self, text: str, *, source: str = "") -> None:
        """Write a line soon."""
        self._put(f"{text}\n", source)

    def end(self, patience: float) -> None:
        """Wait so many seconds at most until all is written that was not left out, or somebody
        presses Ctrl-C."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        # What was led is over: only its reader is waited for.
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
        except io.UnsupportedOperation:  # in memory, of a program that calls us
            self._stream.write(data.decode(self.encoding))
            return
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:  # whoever shares the terminal has made it so
                select.select([], [descriptor], [])

    def _next(self) -> tuple[int, list[bytes]] | None:
        """Waits for lines: how many are missing before them; None at the end."""
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
    return f"-- {count:,} lines were left out here: the output was read too slowly --"


@contextmanager
def non_blocking(
    left_out: Callable[[int], str] = _not_written, *, patience: float = threading.TIMEOUT_MAX
) -> Iterator[None]:
    """Whatever is printed meanwhile neither waits nor fails; in the end all is written, or so many
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
    """Those that are written soon, within `non_blocking`."""
    return sys.stdout if isinstance(sys.stdout, NonBlockingWriter) else BlockingWriter(sys.stdout)


def is_behind() -> bool:
    """What was printed waits for its reader, within `non_blocking`."""
    return getattr(sys.stdout, "behind", False)


def problem_of_output() -> str:
    """Why what is printed, within `non_blocking`, cannot be written; empty where it can."""
    problems = ((name, getattr(getattr(sys, name), "problem", "")) for name in ("stdout", "stderr"))
    return next((_lost(name, why) for name, why in problems if why), "")


def _lost(name: str, why: str) -> str:
    return (
        f"{name} cannot be written: {why}. The training goes on, and each worker's output.log has "
        "all its lines"
    )


def left_out(count: int) -> str:
    """What people read in the place of so many lines."""
    return (
        f"-- {count:,} lines of the processes are missing here: they came faster than they were "
        "read. Each worker's output.log has them all; `trainrun logs` shows the last ones --"
    )


def source_of(worker: str, line: str) -> str:
    """The process of a worker's line, which stands in brackets before it."""
    return f"{worker} {line.partition(']')[0] if line.startswith('[') else ''}"
