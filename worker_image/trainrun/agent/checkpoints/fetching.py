"""Handing checkpoints to the processes: downloaded when asked for, once per node.

Layer: agent. An unreachable store is waited for, since a process that died of it would count as a
failure of the training; so is one that refuses, for a while. A checkpoint that is damaged as the
listing shows is set aside, told, and an error in the process. One whose content reads wrongly may
be good: it is told as a suspect, and no process gets it before it reads well here; the operator
lets another node read it, and ends the attempt when that has.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.backoff import Backoff
from trainrun.contract.agent_state import REFUSED, Damaged, Problem, Suspect
from trainrun.contract.answer import PeerSource
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.questions import Described, Failed, Fetched, Reply
from trainrun.errors import (
    CheckpointDamaged,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    TrainRunError,
)

LOG = logging.getLogger("trainrun.agent")

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class Fetching:
    """Of one attempt."""

    storage: AsyncRunStore
    resume: CheckpointId | None
    initial: str | None
    """URI of `checkpoint.initialFrom`."""
    news: Callable[[], None]
    source: PeerSource | None = None
    """The agent of this node that reads checkpoints from the store for all."""
    again: float = 30.0
    """Seconds until a suspect is read here once more."""
    refusals: float = 30.0
    """Seconds for which a store that refuses what it let this worker read before is asked again."""
    damaged: Damaged | None = None
    problem: Problem | None = None
    _wrong: dict[object, CheckpointDamaged] = field(default_factory=dict)
    """What each request that waits has read wrongly. Stays when the attempt is ended meanwhile."""

    @property
    def suspect(self) -> Suspect | None:
        """The resume point, while some process waits for what reads wrongly."""
        if self.resume is None or not self._wrong:
            return None
        errors = list(self._wrong.values())
        files = tuple(sorted({error.file for error in errors}))
        return Suspect(id=self.resume, files=files, message=str(errors[0]))

    async def checkpoint(self, rank: int | None) -> Reply:
        """Reply with the local directory, step and metrics of the resume point."""

        async def fetch(resume: CheckpointId) -> Reply:
            path = await self.storage.downloads.materialize(resume, rank, self.source)
            return Fetched(path=str(path), about=await self._about(resume))

        return await self._reply(fetch)

    async def info(self) -> Reply:
        """Reply with step and metrics of the resume point, from its manifest."""
        return await self._reply(self._about)

    async def initial_checkpoint(self) -> Reply:
        """Reply with the local directory of the initial checkpoint."""
        uri = self.initial
        if uri is None:
            return Failed(error="the run has no checkpoint.initialFrom")
        try:
            path: Path = await self._patiently(
                lambda: self.storage.downloads.materialize_initial(self.source)
            )
        except (TrainRunError, OSError) as error:
            return Failed(error=f"the initial checkpoint {uri} cannot be read: {error}")
        return Fetched(path=str(path))

    async def _about(self, resume: CheckpointId) -> Described:
        manifest = await self.storage.downloads.manifest(resume)
        return Described(
            attempt=resume.attempt,
            step=resume.step,
            metrics=manifest.metrics,
            metadata=manifest.metadata,
        )

    async def _reply(self, fetch: Callable[[CheckpointId], Awaitable[Reply]]) -> Reply:
        resume = self.resume
        if resume is None:
            return Failed(error="this attempt starts from nothing: there is no checkpoint")
        try:
            return await self._patiently(
                lambda: self._surely(resume, fetch), refusals=self.refusals
            )
        except CheckpointDamaged as error:
            await self._set_aside(resume, str(error))
            return Failed(error=f"checkpoint {resume.name} is damaged: {error}")
        except (TrainRunError, OSError) as error:
            return Failed(error=f"checkpoint {resume.name} cannot be read: {error}")

    async def _surely(
        self, resume: CheckpointId, fetch: Callable[[CheckpointId], Awaitable[Reply]]
    ) -> Reply:
        """Raises CheckpointDamaged only for what is beyond doubt."""
        request = object()
        while True:
            try:
                reply = await _twice(resume, fetch)
            except CheckpointDamaged as error:
                shown = await self._beyond_doubt(resume, error)
                if shown:
                    self._wrong.pop(request, None)
                    raise CheckpointDamaged(shown) from error
                self._wrong[request] = error
                self.news()
                await asyncio.sleep(self.again)
            else:
                if self._wrong.pop(request, None) is not None:
                    self.news()
                return reply

    async def _beyond_doubt(self, resume: CheckpointId, error: CheckpointDamaged) -> str:
        if not error.file or await self.storage.is_set_aside(resume):
            return str(error)
        return await self.storage.shown_damage(resume)

    async def _patiently(self, work: Callable[[], Awaitable[_T]], *, refusals: float = 0.0) -> _T:
        backoff, refused_until = Backoff(0.5, 10.0), 0.0
        while True:
            try:
                result = await work()
            except (StoreUnavailable, StoreDenied, StoreMisconfigured) as error:
                message, reason, now = str(error), "Unavailable", time.monotonic()
                if not isinstance(error, StoreUnavailable):
                    reason, refused_until = REFUSED, refused_until or now + refusals
                    if now >= refused_until:
                        raise  # what was told stays told: it is why the process ends
                message = f"processes wait for a checkpoint: {message}"
                self._tell(Problem(type="StorageUnavailable", reason=reason, message=message))
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
    """What reads wrongly is read again before anybody is told."""
    try:
        return await fetch(resume)
    except CheckpointDamaged as error:
        LOG.warning("checkpoint %s is read once more: %s", resume.name, error)
        return await fetch(resume)
