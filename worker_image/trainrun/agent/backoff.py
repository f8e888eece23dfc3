"""Growing pauses between tries.

Layer: agent, leaf.
"""

from __future__ import annotations

import random


class Backoff:
    """Doubles from `first` to `longest` seconds; jitter keeps a gang from knocking at once."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        """Return the pause before the next try, in seconds."""
        pause, self._next = self._next, min(self._longest, self._next * 2)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """The last try went well."""
        self._next = self._first
