"""How long trials were at work: seconds that stand in no record of the log yet.

Layer: runtime. By the monotonic clock of the process that writes them down: time between two
sessions is nobody's work.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Stopwatch:
    """Of one sweep."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._at = clock()
        self._running = False

    def seconds(self, *, running: bool) -> float:
        """So many by now; from here on trials are at work, or none is."""
        now = self._clock()
        if self._running:
            self._seconds += now - self._at
        self._at, self._running = now, running
        return self._seconds

    def less(self, seconds: float) -> None:
        """So many stand in a record now."""
        self._seconds -= seconds
