"""The last lines of a process's output, and the exception that they tell of.

Layer: agent, pure. Used where the process could not tell the agent itself (it never imported
trainrun, or the interpreter did not even start).
"""

from __future__ import annotations

import re
from collections import deque

from trainrun.agent.processes.tracebacks import Tracebacks

KEPT_LINES = 200
"""Lines kept to find the words of python in."""
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
    """Keeps the last lines."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._tracebacks = Tracebacks()

    def add(self, line: str) -> None:
        """Keep one line, without its line end."""
        self._lines.append(line)
        self._tracebacks.add(line)

    def redrawn(self, states: str) -> None:
        """Look at what a progress bar has replaced, which is not kept."""
        for state in states.split("\r"):
            self._tracebacks.add(state)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last non-empty lines, within the bounds of `ProcessExit.last_lines`."""
        lines = [line[:REPORTED_WIDTH] for line in self._lines if line.strip()]
        return tuple(lines[-REPORTED_LINES:])

    @property
    def exception(self) -> str:
        """The exception that ended the process, as far as its output tells: `ValueError: text`, or
        `StartFailed: ...` where python did not run; else empty."""
        failed = (f"StartFailed: {line}" for line in self._lines if NOT_STARTED.match(line))
        return (self._tracebacks.exception or next(failed, ""))[:EXCEPTION_WIDTH]
