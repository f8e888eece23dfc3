"""Growing pauses between tries.

Layer: agent, leaf.
"""

from __future__ import annotations

import asyncio
import random


class Backoff:
    """Doubles from `first` to `longest` seconds; jitter spreads the retries of a gang."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        """Return the pause before the next try, in seconds."""
        pause, self._next = self._next, min(self._longest, self._next * 2)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """The last try succeeded: start again at the first pause."""
        self._next = self._first


async def ends_early(hurry: asyncio.Event, seconds: float) -> bool:
    """Pause for `seconds`, or until `hurry` is set; returns whether it was."""
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    # Not `wait_for`: Python before 3.12 loses a cancellation that coincides with its end.
    timer = loop.call_later(seconds, hurry.set)
    try:
        await hurry.wait()
    finally:
        timer.cancel()
        hurry.clear()
    return loop.time() < due
