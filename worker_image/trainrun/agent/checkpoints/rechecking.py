"""Reading again what another node reads wrongly, as long as the operator asks for it.

Layer: agent. One witness does not condemn a checkpoint: its memory or its network may be at fault.
Invariant: what is told to be bad has been read wrongly here two times, and is set aside by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.backoff import Backoff
from trainrun.contract.agent_state import Rechecked
from trainrun.contract.answer import Recheck
from trainrun.errors import CheckpointDamaged, TrainRunError

LOG = logging.getLogger("trainrun.agent")


@dataclass(slots=True, kw_only=True)
class Rechecking:
    """Of one agent."""

    storage: AsyncRunStore
    news: Callable[[], None]
    done: Rechecked | None = None
    """What came of the last order."""
    _order: Recheck | None = None
    _task: asyncio.Task[None] | None = None

    def want(self, order: Recheck | None) -> None:
        """Read this now; None: nothing (what was found stays known)."""
        if order == self._order:
            return
        self._order = order
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if order is not None and (self.done is None or self.done.recheck != order):
            self._task = background.run(self._run(order))

    async def _run(self, order: Recheck) -> None:
        backoff = Backoff(0.5, 10.0)
        while True:
            try:
                message = await self._found(order)
            except (TrainRunError, OSError) as error:
                LOG.warning("checkpoint %s cannot be read again now: %s", order.id.name, error)
                await asyncio.sleep(backoff.next())
            else:
                LOG.info("checkpoint %s, read again: %s", order.id.name, message or "good")
                self.done = Rechecked(recheck=order, good=not message, message=message)
                self.news()
                return

    async def _found(self, order: Recheck) -> str:
        """What is wrong with it, by two readings; empty: nothing."""
        message = await self._read(order) and await self._read(order)
        if message:
            await self.storage.set_aside(order.id, message)
        return message

    async def _read(self, order: Recheck) -> str:
        try:
            await self.storage.read_again(order)
        except CheckpointDamaged as error:
            return str(error)
        return ""
