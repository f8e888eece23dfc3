"""When the processes of an attempt asked for a checkpoint, and how long they waited for it.

Layer: agent, pure bookkeeping.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class Loading:
    """Of one attempt: entered while a process waits, by any number at once."""

    first: float | None = None
    """When the first one asked, on the monotonic clock."""
    last: float | None = None
    """When the last one had its answer."""
    _waiting: int = 0

    def __enter__(self) -> None:
        """A process asks."""
        self.first = self.first if self.first is not None else time.monotonic()
        self._waiting += 1

    def __exit__(self, *_: object) -> None:
        """It has its answer, or has gone."""
        self._waiting -= 1
        self.last = time.monotonic()

    def before(self, spawned: float) -> float:
        """Seconds from the spawn until the first one asked; 0: none has."""
        return 0.0 if self.first is None else max(self.first - spawned, 0.0)

    def seconds(self, now: float) -> float:
        """Seconds from the first question to the last answer."""
        if self.first is None:
            return 0.0
        end = now if self._waiting or self.last is None else self.last
        return end - self.first
