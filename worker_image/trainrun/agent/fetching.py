"""Handing checkpoints to the processes: downloaded when asked for, once per node.

Layer: agent. An unreachable store is waited for, since a process that died of it would count as a
failure of the training; a damaged checkpoint is set aside, told, and is an error in the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainrun.agent.backoff import Backoff
from trainrun.agent.storage import Storage
from trainrun.errors import (
    CheckpointDamaged,
    StoreError,
    StoreUnavailable,
    TrainRunError,
)
from trainrun.protocol import CheckpointId, Damaged, PeerSource, Problem

LOG = logging.getLogger("trainrun.agent")

_T = TypeVar("_T")

Reply = dict[str, object]


@dataclass(slots=True, kw_only=True)
class Fetching:
    """Of one attempt."""

    storage: Storage
    resume: CheckpointId | None
    initial: str | None
    """URI of `checkpoint.initialFrom`."""
    news: Callable[[], None]
    source: PeerSource | None = None
    """The agent of this node that reads checkpoints from the store for all."""
    damaged: Damaged | None = None
    problem: Problem | None = None

    async def checkpoint(self, rank: int | None) -> Reply:
        """Reply with the local directory, step and metrics of the resume point."""

        async def fetch(resume: CheckpointId) -> Reply:
            path = await self.storage.materialize(resume, rank, self.source)
            return {**await self._about(resume), "path": str(path)}

        return await self._reply(fetch)

    async def info(self) -> Reply:
        """Reply with step and metrics of the resume point, from its manifest."""
        return await self._reply(self._about)

    async def initial_checkpoint(self) -> Reply:
        """Reply with the local directory of the initial checkpoint."""
        uri = self.initial
        if uri is None:
            return {"error": "the run has no checkpoint.initialFrom"}
        try:
            path: Path = await self._patiently(
                lambda: self.storage.materialize_initial(self.source)
            )
        except (TrainRunError, OSError) as error:
            return {"error": f"the initial checkpoint {uri} cannot be read: {error}"}
        return {"path": str(path)}

    async def _about(self, resume: CheckpointId) -> Reply:
        manifest = await self.storage.manifest(resume)
        return {"step": resume.step, "attempt": resume.attempt, "metrics": manifest.metrics}

    async def _reply(self, fetch: Callable[[CheckpointId], Awaitable[Reply]]) -> Reply:
        resume = self.resume
        if resume is None:
            return {"error": "this attempt starts from nothing: there is no checkpoint"}
        try:
            return await self._patiently(lambda: _twice(resume, fetch))
        except CheckpointDamaged as error:
            await self._set_aside(resume, str(error))
            return {"error": f"checkpoint {resume.name} is damaged: {error}"}
        except (TrainRunError, OSError) as error:
            return {"error": f"checkpoint {resume.name} cannot be read: {error}"}

    async def _patiently(self, work: Callable[[], Awaitable[_T]]) -> _T:
        backoff = Backoff(0.5, 10.0)
        while True:
            try:
                result = await work()
            except StoreUnavailable as error:
                message = f"processes wait for a checkpoint: {error}"
                self._tell(
                    Problem(type="StorageUnavailable", reason="Unavailable", message=message)
                )
                await asyncio.sleep(backoff.next())
            else:
                self._tell(None)
                return result

    async def _set_aside(self, resume: CheckpointId, message: str) -> None:
        LOG.error("checkpoint %s is damaged: %s", resume.name, message)
        try:
            await self.storage.set_aside(resume, message)
        except StoreError as error:
            # The resolver of the next attempt meets the damage again.
            LOG.warning("checkpoint %s could not be set aside: %s", resume.name, error)
        self.damaged = Damaged(id=resume, message=message)
        self.news()

    def _tell(self, problem: Problem | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self.news()


async def _twice(resume: CheckpointId, fetch: Callable[[CheckpointId], Awaitable[Reply]]) -> Reply:
    """A damaged checkpoint is given up for ever, so it is read again before that is believed."""
    try:
        return await fetch(resume)
    except CheckpointDamaged as error:
        LOG.warning("checkpoint %s is read once more: %s", resume.name, error)
        return await fetch(resume)
