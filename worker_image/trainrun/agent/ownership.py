"""The sign of life of the storage's owner, written by slot 0's agent.

Layer: agent. While the beat moves nobody else takes the storage over; a store that is away delays
it, which is harmless: then nobody else can claim it either.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from trainrun.agent import background
from trainrun.agent.storage import Storage
from trainrun.errors import TrainRunError
from trainrun.protocol import CheckpointId, Problem

LOG = logging.getLogger("trainrun.agent")

INTERVAL = 7.5
"""Seconds between beats: a quarter of the lease of `trainrun.checkpoint.ownership`."""


@dataclass(slots=True, kw_only=True)
class Ownership:
    """Of one agent."""

    storage: Storage
    committed: Callable[[], CheckpointId | None]
    """The newest checkpoint known to be committed."""
    news: Callable[[], None]
    problem: Problem | None = None
    _counter: int = field(default_factory=lambda: secrets.randbelow(1 << 30))
    """Starts anywhere, so that two agents of one run never write the same beat."""
    _task: asyncio.Task[None] | None = None

    def keep(self) -> None:
        """Beat from now on."""
        if self._task is None or self._task.done():
            self._task = background.run(self._run())

    def stop(self) -> None:
        """Beat no more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._counter += 1
            try:
                ours = await self.storage.beat(self._counter, self.committed())
            except TrainRunError as error:
                LOG.debug("no beat: %s", error)
            else:
                self._tell(ours)
            await asyncio.sleep(INTERVAL)

    def _tell(self, ours: bool) -> None:
        problem = None
        if not ours:
            message = "another TrainRun has taken over this run's storage; two runs share a runName"
            problem = Problem(type="StorageLost", reason="TakenOver", message=message)
        if problem != self.problem:
            self.problem = problem
            self.news()
