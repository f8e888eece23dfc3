"""One run of a drill in a cluster: made, watched, struck, stopped.

Layer: cli. It is removed by whoever has made it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainrun.checkpoint.inspection import list_checkpoints
from trainrun.errors import StoreUnavailable

if TYPE_CHECKING:
    from trainrun.checkpoint.run_store import RunStore
    from trainrun.contract.checkpoint_id import CheckpointId
    from trainrun_operator.cli.drilling.cluster.sight import Sight
    from trainrun_operator.worlds.kubernetes.own_run import OwnRun
    from trainrun_operator.worlds.kubernetes.run_object import RunVersion

LOOK = 0.5
"""Seconds between two looks at the run."""
ENDING = 30.0
"""Seconds beside the grace of its workers that a run may take to end once it is told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTrial:
    """One of them."""

    run: OwnRun
    store: RunStore
    """Where it saves."""
    sight: Sight
    grace: float
    """Seconds that its workers have to end."""

    async def hold(self, seconds: float) -> RunVersion:
        """Let it run, at most so long; how it was in the end. Raises KubeError, InvalidSpec,
        StoreError."""
        deadline = time.monotonic() + seconds
        version = await self.run.create()
        while time.monotonic() < deadline and not version.status.finished:
            due = self.sight.due(version.status, await self._saved())
            if due == "Stop":
                break
            if due == "Strike":
                self.sight.struck = await self._strike(version)
            await asyncio.sleep(LOOK)
            version = await self.run.read() or version
        if not version.status.finished:
            await self.run.suspend()
        return await self._over(version)

    async def _saved(self) -> list[CheckpointId]:
        try:
            found = await asyncio.to_thread(list_checkpoints, self.store)
        except StoreUnavailable:
            return []
        return [info.id for info in found if info.state == "good"]

    async def _strike(self, version: RunVersion) -> bool:
        """Delete the worker; says whether it was there."""
        fault = self.sight.fault
        assert fault is not None
        slot = fault.rank // version.config.processes_per_worker
        return await self.run.delete_pod(slot, grace=0 if fault.kind == "kill" else None)

    async def _over(self, version: RunVersion) -> RunVersion:
        """When nothing runs any more, and everything is stored that workers had to store."""
        deadline = time.monotonic() + self.grace + ENDING
        while time.monotonic() < deadline:
            version = await self.run.read() or version
            ended = version.status.finished or version.status.is_true("Suspended")
            if ended and not await self.run.works():
                break
            await asyncio.sleep(LOOK)
        return version
