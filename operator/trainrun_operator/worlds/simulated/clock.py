"""Virtual time: a heap of things that will happen, in a total order.

Layer: worlds. Two things at the same moment happen in the order in which they were planned.
"""

from __future__ import annotations

import heapq
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The virtual world's beginning; any date would do."""


class Clock:
    """Seconds since the beginning, and what happens later."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._planned = 0

    @property
    def datetime(self) -> datetime:
        """The moment as the core sees it."""
        return START + timedelta(seconds=self.now)

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Let `what` happen `seconds` from now."""
        self._planned += 1
        heapq.heappush(self._queue, (self.now + seconds, self._planned, what))

    def step(self) -> bool:
        """Let the next thing happen; False when nothing is planned."""
        if not self._queue:
            return False
        self.now, _, what = heapq.heappop(self._queue)
        what()
        return True
