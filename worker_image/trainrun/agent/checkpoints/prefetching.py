"""Reading ahead what the next attempt will most likely resume from, while the gang gathers.

Layer: agent. A help and no condition: nothing is handed to a process here, and what goes wrong is
met again, and told, when a process asks (see `fetching`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import TrainRunError

LOG = logging.getLogger("trainrun.agent")


@dataclass(slots=True, kw_only=True)
class Prefetching:
    """Of one agent."""

    storage: AsyncRunStore
    ranks: Sequence[int]
    """Global ranks of this worker."""
    _wanted: CheckpointId | None = None
    _task: asyncio.Task[None] | None = None

    def want(self, checkpoint: CheckpointId) -> None:
        """Read this one, once."""
        if checkpoint != self._wanted:
            self._wanted = checkpoint
            self._task = background.run(self._read(checkpoint))

    def only(self, resume: CheckpointId | None) -> None:
        """The attempt begins, with this resume point: any other is of no use."""
        self._wanted = resume

    async def _read(self, checkpoint: CheckpointId) -> None:
        began = time.monotonic()
        try:
            size = await self.storage.downloads.prefetch(
                checkpoint, self.ranks, lambda: self._wanted == checkpoint
            )
        except (TrainRunError, OSError) as error:
            LOG.info("checkpoint %s is not read ahead: %s", checkpoint.name, error)
        else:
            took = time.monotonic() - began
            LOG.info(
                "checkpoint %s: read ahead, %.1f MB in %.1f s", checkpoint.name, size / 1e6, took
            )
