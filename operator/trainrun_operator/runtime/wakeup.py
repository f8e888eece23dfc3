"""When the next pass is due: now, soon, or later; the earliest wish wins.

Layer: runtime. Any number of wishes between two passes lead to one pass. Its clock is that of the
event loop, which in a simulation is virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from trainrun.contract.answer import PROGRESS_INTERVAL


class Wakeup:
    """The alarm clock of one run's reconciler. Not thread-safe: for the event loop's thread."""

    def __init__(self, progress_interval: Callable[[], float] = lambda: PROGRESS_INTERVAL) -> None:
        """`progress_interval` is asked for the seconds in which steps and metrics alone lead to no
        more than one pass."""
        self._progress_interval = progress_interval
        self._due = 0.0
        self._passed_at = -inf
        self._earlier = asyncio.Event()

    @property
    def progress_interval(self) -> float:
        """Seconds in which steps and metrics alone lead to no more than one pass."""
        return self._progress_interval()

    def now(self) -> None:
        """Something happened that a decision depends on."""
        self._at(self.time())

    def soon(self) -> None:
        """Steps or metrics changed: the progress interval after the last pass is early enough."""
        self._at(self._passed_at + self.progress_interval)

    def after(self, seconds: float) -> None:
        """No later than this."""
        self._at(self.time() + seconds)

    async def wait(self) -> None:
        """Return when a pass is due; all wishes so far are fulfilled by it."""
        # Let others run, also when one pass follows the other at once.
        await asyncio.sleep(0)
        while (pause := self._due - self.time()) > 0:
            await self._rest(pause)
        self._due, self._passed_at = inf, self.time()

    def time(self) -> float:
        """Seconds by the clock that all of this goes by."""
        return asyncio.get_running_loop().time()

    async def _rest(self, pause: float, /) -> None:
        """Until the pause is over, or an earlier wish comes."""
        self._earlier.clear()
        try:
            async with asyncio.timeout(None if pause == inf else pause):
                await self._earlier.wait()
        except TimeoutError:
            pass

    def _at(self, moment: float) -> None:
        if moment < self._due:
            self._due = moment
            self._earlier.set()
