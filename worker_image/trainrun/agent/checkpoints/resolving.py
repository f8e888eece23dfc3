"""Ownership of the storage: claiming the resume point of the next attempt, and the owner's beat.

Layer: agent. Claims or reads a resume point while the operator asks for it, once per attempt
number; retries outcomes that time may change. Slot 0's agent writes the beat. While the beat
advances, no other TrainRun takes over the storage; an unreachable store delays it, which is
harmless, since then no other TrainRun can claim the storage either.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.desired_state import settled
from trainrun.contract.agent_state import Problem, Resolution
from trainrun.contract.answer import ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import TrainRunError

LOG = logging.getLogger("trainrun.agent")

PAUSE = (1.0, 2.0)
"""Seconds between two tries, drawn from this range."""


@dataclass(slots=True, kw_only=True)
class Resolving:
    """Claims, or reads, the resume point of the next attempt; of one agent."""

    storage: AsyncRunStore
    news: Callable[[], None]
    resolved: Callable[[], None]
    """Called when this run has become the owner of the storage."""
    claimed: int = 0
    """The last attempt whose resume point this agent has claimed; 0: none."""
    _request: ResolveRequest | None = None
    _resolution: Resolution | None = None
    _at: float = 0.0
    _task: asyncio.Task[None] | None = None

    def want(self, request: ResolveRequest | None) -> None:
        """Resolve this request now; None: nothing (the last result stays)."""
        if request is None:
            self._cancel()
        elif not settled(self._resolution, request) and not self._running(request):
            self._cancel()
            self._request = request
            self._task = background.run(self._run(request))

    def resolution(self, now: float) -> Resolution | None:
        """The last answer of the store, with its age."""
        if self._resolution is None:
            return None
        return replace(self._resolution, age=max(0.0, now - self._at))

    def _running(self, request: ResolveRequest) -> bool:
        return (
            self._task is not None
            and not self._task.done()
            and self._request is not None
            and self._request.asks_as(request)
        )

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, request: ResolveRequest) -> None:
        while True:
            found = await self.storage.resolve(request)
            self._take(found, claims=not request.proof)
            if settled(found, request):
                return
            await asyncio.sleep(random.uniform(*PAUSE))

    def _take(self, found: Resolution, *, claims: bool) -> None:
        before = self._resolution
        self._resolution, self._at = found, time.monotonic()
        if before is None or replace(before, age=0.0) != replace(found, age=0.0):
            LOG.info("attempt %d: %s: %s", found.attempt, found.outcome, found.message)
        if claims and found.outcome == "Resolved":
            self.claimed = found.attempt
            self.resolved()
        self.news()


BEAT_INTERVAL = 7.5
"""Seconds between beats: a quarter of the lease of `trainrun.checkpoint.ownership`."""


@dataclass(slots=True, kw_only=True)
class Ownership:
    """The beat of the storage's owner; of one agent."""

    storage: AsyncRunStore
    committed: Callable[[], CheckpointId | None]
    """Returns the newest checkpoint known to be committed."""
    news: Callable[[], None]
    problem: Problem | None = None
    _counter: int = field(default_factory=lambda: secrets.randbelow(1 << 30))
    """Starts anywhere, so that two agents of one run never write the same beat."""
    _task: asyncio.Task[None] | None = None

    def keep(self) -> None:
        """Start the beat."""
        if self._task is None or self._task.done():
            self._task = background.run(self._run())

    def stop(self) -> None:
        """Stop the beat."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            self._counter += 1
            try:
                ours = await self.storage.beat(self._counter, self.committed())
                self._set_problem(None if ours else _lost_to(await self.storage.owner()))
            except TrainRunError as error:
                LOG.debug("no beat: %s", error)
            await asyncio.sleep(BEAT_INTERVAL)

    def _set_problem(self, problem: Problem | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self.news()


def _lost_to(owner: str) -> Problem:
    if not owner:
        message = (
            "the owner record of this run's storage is gone: the folder was deleted, with every "
            "committed checkpoint in it. Find out what else writes there"
        )
        return Problem(type="StorageLost", reason="ClaimGone", message=message)
    message = (
        f"this run has lost or released its storage, which TrainRun uid {owner} claimed last. Two "
        "runs share a runName: change one of them"
    )
    return Problem(type="StorageLost", reason="TakenOver", message=message)
