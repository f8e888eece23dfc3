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
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.contract.agent_state import Problem
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import TrainRunError

LOG = logging.getLogger("trainrun.agent")

INTERVAL = 7.5
"""Seconds between beats: a quarter of the lease of `trainrun.checkpoint.ownership`."""


@dataclass(slots=True, kw_only=True)
class Ownership:
    """Of one agent."""

    storage: AsyncRunStore
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
                self._tell(None if ours else _lost_to(await self.storage.owner()))
            except TrainRunError as error:
                LOG.debug("no beat: %s", error)
            await asyncio.sleep(INTERVAL)

    def _tell(self, problem: Problem | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self.news()


def _lost_to(owner: str) -> Problem:
    if not owner:
        message = (
            "the record of who owns this run's storage is gone: its folder was deleted, and with "
            "it what was committed; see who else writes there"
        )
        return Problem(type="StorageLost", reason="ClaimGone", message=message)
    message = (
        f"TrainRun uid {owner} was the last to claim this run's storage, which this one has given "
        "up or lost; two runs share a runName"
    )
    return Problem(type="StorageLost", reason="TakenOver", message=message)
