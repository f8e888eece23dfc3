"""The last lines of one process, as they are stored when its attempt has ended.

Layer: agent, leaf. In memory and not on a disk: an agent lives as long as its pod, so a file would
outlive nothing, and a disk that hangs would stop the agent. Bounded in lines and in bytes.
"""

from __future__ import annotations

from collections import deque

MOST_LINES = 2000
"""Lines kept of a process."""
MOST_BYTES = 512 << 10
"""Characters kept of a process."""
LONGEST = 4096
"""Characters kept of a line."""
CUT = " ..."
"""Ends a line that was cut."""


class LogTail:
    """Keeps the last lines, each with the moment at which it came."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str]] = deque()
        self._size = 0
        self.seen = 0
        """Lines so far."""

    def add(self, moment: float, line: str) -> None:
        """Keep one line, without its line end."""
        if len(line) > LONGEST:
            line = line[: LONGEST - len(CUT)] + CUT
        self._lines.append((moment, line))
        self._size += len(line) + 1
        self.seen += 1
        while len(self._lines) > MOST_LINES or self._size > MOST_BYTES:
            _, gone = self._lines.popleft()
            self._size -= len(gone) + 1

    def last(self, most: int) -> list[tuple[float, str]]:
        """The last lines, at most so many."""
        return list(self._lines)[-most:] if most else []
