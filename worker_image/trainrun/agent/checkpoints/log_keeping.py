"""Storing the last lines of an attempt that has ended.

Layer: agent. In the background and best effort: asked for when the uploads of checkpoints are
done, and some seconds later where the worker stays: the next start needs the CPU and the store.
What an agent has not stored when it dies is missing, and readers see that its object is.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.backoff import Backoff
from trainrun.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainrun.checkpoint import WorkerLog

LOG = logging.getLogger("trainrun.agent")

PAUSE = (3.0, 10.0)
"""Seconds before they are stored, at random: not all workers at once, and none while it starts."""
MOST_WAITING = 3
"""Attempts whose lines wait while the store is away; the oldest go first."""


@dataclass(slots=True, kw_only=True)
class LogKeeping:
    """Of one agent."""

    storage: AsyncRunStore
    _kept: int = 0
    """The highest attempt that was asked for."""
    _waiting: deque[WorkerLog] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    _hurry: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def keep(self, attempt: int, lines: Callable[[], WorkerLog]) -> None:
        """Store the last lines of an attempt of which nothing runs any more, once."""
        if attempt <= self._kept:
            return
        self._kept = attempt
        self._waiting.append(lines())
        if self._task is None or self._task.done():
            self._task = background.run(self._run())

    async def finished(self) -> None:
        """Store what waits now, and wait until all is stored."""
        self._hurry.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        backoff = Backoff(0.5, 10.0)
        await self._pause()
        while self._waiting:
            log = self._waiting[0]
            try:
                await self.storage.write_log(log)
            except StoreError as error:
                LOG.debug("the last lines of attempt %d wait: %s", log.attempt, error)
                await asyncio.sleep(backoff.next())
                continue
            # Another may have pushed it out meanwhile.
            if self._waiting and self._waiting[0] is log:
                self._waiting.popleft()

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._hurry.wait(), random.uniform(*PAUSE))
        except asyncio.TimeoutError:
            pass
