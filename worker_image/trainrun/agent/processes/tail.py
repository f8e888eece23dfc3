"""The last lines of a process's output, and the exception that they tell of.

Layer: agent, leaf. The lines are stored when the attempt has ended. The exception is used where the
process could not tell the agent itself (it never imported trainrun, or the interpreter did not even
start). In memory and not on a disk: an agent lives as long as its pod, so a file would outlive
nothing, and a disk that hangs would stop the agent. Bounded in lines and in bytes.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice

from trainrun.agent.processes.tracebacks import Tracebacks

MOST_LINES = 2000
"""Lines kept of a process."""
MOST_BYTES = 512 << 10
"""Characters kept of a process."""
LONGEST = 4096
"""Characters kept of a line."""
CUT = " ..."
"""Ends a line that was cut."""
SEARCHED = 200
"""Lines in which the words of python are looked for."""
REPORTED_LINES = 20
REPORTED_WIDTH = 400
"""Bounds of `ProcessExit.last_lines`."""
EXCEPTION_WIDTH = 1000
"""Characters kept of an exception."""

NOT_STARTED = re.compile(
    r"^\S*python[\d.]*: (can't open file .*|can't find '__main__' module in .*|"
    r"No module named .*|Error while finding module specification for .*)$"
)
"""What python itself says when it has no program to run."""


class Tail:
    """Keeps the last lines, each with the moment at which it came."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str, bool]] = deque()
        self._size = 0
        self._tracebacks = Tracebacks()
        self.seen = 0
        """Lines so far."""

    def add(self, moment: float, line: str, *, bar: bool = False) -> None:
        """Keep one line, without its line end, or a state of a `bar` that may be redrawn."""
        if not bar:  # `redrawn` has looked at it
            self._tracebacks.add(line)
        if len(line) > LONGEST:
            line = line[: LONGEST - len(CUT)] + CUT
        self._lines.append((moment, line, bar))
        self._size += len(line) + 1
        self.seen += 1
        while len(self._lines) > MOST_LINES or self._size > MOST_BYTES:
            _, gone, _ = self._lines.popleft()
            self._size -= len(gone) + 1

    def redrawn(self, states: str) -> None:
        """Look at what a progress bar has replaced, which is not kept."""
        for state in states.split("\r"):
            self._tracebacks.add(state)

    def last(self, most: int) -> list[tuple[float, str]]:
        """The last lines, at most so many."""
        return [(at, line) for at, line, _ in list(self._lines)[-most:]] if most else []

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last non-empty lines without bars, within the bounds of `ProcessExit.last_lines`."""
        whole = (line for _, line, bar in reversed(self._lines) if line.strip() and not bar)
        return tuple(line[:REPORTED_WIDTH] for line in islice(whole, REPORTED_LINES))[::-1]

    @property
    def exception(self) -> str:
        """The exception that ended the process, as far as its output tells: `ValueError: text`, or
        `StartFailed: ...` where python did not run; else empty."""
        lines = (line for _, line in self.last(SEARCHED))
        failed = (f"StartFailed: {line}" for line in lines if NOT_STARTED.match(line))
        return (self._tracebacks.exception or next(failed, ""))[:EXCEPTION_WIDTH]
