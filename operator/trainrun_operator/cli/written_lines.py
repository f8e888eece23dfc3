"""Lines for whoever reads our output: at once, and no harm if nobody does any more.

Layer: cli, leaf. A terminal or a program may read more slowly than processes print. Nothing waits
for it: the oldest lines are left out, but for the last ones of each process, and the place says
how many.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol, Self, TextIO

BACKLOG = 1 << 20
"""Characters that wait for their reader, at most, besides what is never left out."""
LAST = 50
"""Lines of each process that are never left out: the last ones."""
MOST_SPARED = 10_000
"""Lines that wait because they are never left out, at most."""
BATCH = 100
"""Lines that are written at once, at most."""


class Lines(Protocol):
    """Where lines go."""

    def line(self, text: str, *, source: str = "") -> None:
        """Write it; where it has a `source`, the process that printed it, it may be left out."""


class WrittenLines:
    """Writes each line before it returns."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self, text: str, *, source: str = "") -> None:  # noqa: ARG002 - as in Lines
        """Write it now."""
        try:
            print(text, file=self._stream, flush=True)
        except BrokenPipeError:
            pass  # the reader (`| head`) has gone; the training goes on


class UnhurriedLines:
    """Never waits: writes from a thread of its own. A context manager, at whose end all is written
    that was not left out."""

    def __init__(self, stream: TextIO, *, left_out: Callable[[int], str]) -> None:
        """`left_out` is the line that stands in the place of so many lines."""
        self._written = WrittenLines(stream)
        self._left_out = left_out
        self._waiting: deque[tuple[str, str]] = deque()
        self._lines: Counter[str] = Counter()
        """By source, how many wait."""
        self._size = 0
        self._missing = 0
        """Lines left out before those that wait."""
        self._spared: deque[str] = deque()
        """Lines from between them."""
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._write_all, name="lines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def line(self, text: str, *, source: str = "") -> None:
        """Write it soon."""
        with self._changed:
            self._waiting.append((text, source))
            self._lines[source] += 1
            self._size += len(text)
            while self._size > BACKLOG and len(self._waiting) > 1:
                self._leave_out(*self._take())
            self._changed.notify()

    def _take(self) -> tuple[str, str]:
        text, source = self._waiting.popleft()
        self._lines[source] -= 1
        self._size -= len(text)
        return text, source

    def _leave_out(self, text: str, source: str) -> None:
        if source and self._lines[source] >= LAST:
            self._missing += 1
            return
        self._spared.append(text)
        if len(self._spared) > MOST_SPARED:
            self._spared.popleft()
            self._missing += 1

    def _write_all(self) -> None:
        while batch := self._next():
            self._written.line("\n".join(batch))

    def _next(self) -> list[str]:
        """Waits for lines; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            batch = [self._left_out(self._missing)] if self._missing else []
            batch += self._spared
            self._missing = 0
            self._spared.clear()
            batch += (self._take()[0] for _ in range(min(BATCH, len(self._waiting))))
            return batch


def left_out(count: int) -> str:
    """What people read in the place of so many lines."""
    return (
        f"-- {count:,} lines of the processes are missing here: they came faster than they were "
        "read. Each worker's output.log has them all; `trainrun logs` shows the last ones --"
    )


def source_of(worker: str, line: str) -> str:
    """The process of a worker's line, which stands in brackets before it."""
    return f"{worker} {line.partition(']')[0] if line.startswith('[') else ''}"
