"""Claiming or reading the resume point of the next attempt, as long as the operator asks for it.

Layer: agent. Once per attempt number; outcomes that time may change are asked for again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.duty import settled
from trainrun.contract.agent_state import Resolution
from trainrun.contract.answer import ResolveRequest

LOG = logging.getLogger("trainrun.agent")

PAUSE = (1.0, 2.0)
"""Seconds between two tries, drawn from this range."""


@dataclass(slots=True, kw_only=True)
class Resolving:
    """Of one agent."""

    storage: AsyncRunStore
    news: Callable[[], None]
    resolved: Callable[[], None]
    """Called when the storage has become ours."""
    _request: ResolveRequest | None = None
    _resolution: Resolution | None = None
    _at: float = 0.0
    _claimed: int = 0
    _task: asyncio.Task[None] | None = None

    def want(self, request: ResolveRequest | None) -> None:
        """Resolve what is asked for now; None: nothing (what was found stays known)."""
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

    @property
    def claimed(self) -> int:
        """The attempt whose resume point this agent has claimed last; 0: none."""
        return self._claimed

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
            self._claimed = found.attempt
            self.resolved()
        self.news()
