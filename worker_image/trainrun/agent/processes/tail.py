"""The last lines of a process's output, and the exception that they tell of.

Layer: agent, pure. Used where the process could not tell the agent itself (it never imported
trainrun, or the interpreter did not even start).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

KEPT_LINES = 200
"""Lines kept to find a traceback in."""
REPORTED_LINES = 20
REPORTED_WIDTH = 400
"""Bounds of `ProcessExit.last_lines`."""
EXCEPTION_WIDTH = 1000
"""Characters kept of an exception."""

TRACEBACK = "Traceback (most recent call last):"
EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(: .*)?$", re.DOTALL)
NOT_STARTED = re.compile(
    r"^\S*python[\d.]*: (can't open file .*|can't find '__main__' module in .*|"
    r"No module named .*|Error while finding module specification for .*)$"
)
"""What python itself says when it has no program to run."""


class Tail:
    """Keeps the last lines."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)

    def add(self, line: str) -> None:
        """Keep one line, without its line end."""
        self._lines.append(line)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last non-empty lines, within the bounds of `ProcessExit.last_lines`."""
        lines = [line[:REPORTED_WIDTH] for line in self._lines if line.strip()]
        return tuple(lines[-REPORTED_LINES:])

    @property
    def exception(self) -> str:
        """The exception that ended the process, as far as its output tells; else empty."""
        return find_exception(self._lines)


def find_exception(lines: Iterable[str]) -> str:
    """Return `ValueError: text` of the last traceback, `StartFailed: ...` where python did not run.

    Empty when the lines tell of neither.
    """
    found = ""
    inside = False
    for line in lines:
        if line.strip() == TRACEBACK:
            inside = True
        elif inside and not line.startswith((" ", "\t")) and EXCEPTION.match(line):
            found, inside = line, False
        elif not inside and NOT_STARTED.match(line):
            found = f"StartFailed: {line}"
    return found[:EXCEPTION_WIDTH]
