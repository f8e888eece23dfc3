"""Reading checkpoints: for processes that request them, ahead of time, and again for another node.

Layer: agent. A checkpoint is downloaded on request, once per node. If the store is unreachable, the
agent waits, since a process that died of it would count as a failure of the training; if the store
refuses, it waits for a while. A checkpoint whose damage the listing shows is set aside, reported,
and raised in the process. One whose content reads wrongly may be good: the agent reports it as
suspect and hands it out only after it reads well here; the operator has another node read it, and
then ends the attempt. One reader is not enough: its memory or network may be at fault.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from trainrun._common.backoff import Backoff
from trainrun.agent import background
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.records import Manifest
from trainrun.contract.agent_state import REFUSED, Damaged, Problem, Rechecked, Suspect
from trainrun.contract.answer import PeerSource, Recheck
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.questions import Described, Failed, Fetched, Reply
from trainrun.errors import (
    CheckpointDamaged,
    NotUploadedYet,
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
    """Hands checkpoints to the processes of one attempt."""

    storage: AsyncRunStore
    resume: CheckpointId | None
    initial: str | None
    """URI of `checkpoint.initialFrom`."""
    news: Callable[[], None]
    source: PeerSource | None = None
    """The agent of this node that reads checkpoints from the store for all workers."""
    again: float = 30.0
    """Seconds until a suspect is read here again."""
    refusals: float = 30.0
    """Seconds to retry when the store refuses what it let this worker read before."""
    damaged: Damaged | None = None
    problem: Problem | None = None
    _wrong: dict[object, CheckpointDamaged] = field(default_factory=dict)
    """The read error of each waiting request. Stays if the attempt ends meanwhile."""

    @property
    def suspect(self) -> Suspect | None:
        """The resume point, while a process waits because it reads wrongly."""
        if self.resume is None or not self._wrong:
            return None
        errors = list(self._wrong.values())
        files = tuple(sorted({error.file for error in errors}))
        return Suspect(id=self.resume, files=files, message=str(errors[0]))

    async def checkpoint(self, rank: int | None, include: Sequence[str] = ()) -> Reply:
        """Reply with the local directory of the resume point."""

        async def fetch(resume: CheckpointId) -> Fetched:
            path = await self.storage.downloads.materialize(
                resume, rank, self.source, include=include
            )
            return Fetched(path=str(path))

        return await self._reply(fetch)

    async def ranges(self, file: str, ranges: Sequence[tuple[int, int]]) -> Reply:
        """Reply with a local file that has these ranges of one of the resume point's."""

        async def fetch(resume: CheckpointId) -> Fetched:
            return Fetched(path=str(await self.storage.downloads.piece(resume, file, ranges)))

        return await self._reply(fetch)

    async def info(self) -> Reply:
        """Reply with step and metrics of the resume point, from its manifest."""
        manifest = await self.manifest()
        if isinstance(manifest, Failed):
            return manifest
        return Described(
            attempt=manifest.attempt,
            step=manifest.step,
            metrics=manifest.metrics,
            metadata=manifest.metadata,
        )

    async def manifest(self) -> Manifest | Failed:
        """The manifest of the resume point, or why it cannot be read."""
        return await self._reply(self.storage.downloads.manifest)

    async def initial_checkpoint(self, include: Sequence[str] = ()) -> Reply:
        """Reply with the local directory of the initial checkpoint."""
        uri = self.initial
        if uri is None:
            return Failed(error="the run has no checkpoint.initialFrom")
        try:
            path: Path = await self._patiently(
                lambda: self.storage.downloads.materialize_initial(self.source, include=include)
            )
        except (TrainRunError, OSError) as error:
            return Failed(error=f"the initial checkpoint {uri} cannot be read: {error}")
        return Fetched(path=str(path))

    async def _reply(self, fetch: Callable[[CheckpointId], Awaitable[_T]]) -> _T | Failed:
        resume = self.resume
        if resume is None:
            return Failed(error="this attempt has no checkpoint to resume from")
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
        self, resume: CheckpointId, fetch: Callable[[CheckpointId], Awaitable[_T]]
    ) -> _T:
        """Raises CheckpointDamaged only if the damage is certain."""
        request = object()
        while True:
            try:
                reply = await _twice(resume, fetch)
            except CheckpointDamaged as error:
                damage = await self._beyond_doubt(resume, error)
                if damage:
                    self._wrong.pop(request, None)
                    raise CheckpointDamaged(damage) from error
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
        return await self.storage.listed_damage(resume)

    async def _patiently(self, work: Callable[[], Awaitable[_T]], *, refusals: float = 0.0) -> _T:
        backoff, refused_until = Backoff(0.5, 10.0), 0.0
        while True:
            try:
                result = await work()
            except (StoreUnavailable, StoreDenied, StoreMisconfigured) as error:
                message, reason, now = str(error), "Unavailable", time.monotonic()
                kind = "StorageUnavailable"
                if isinstance(error, NotUploadedYet):
                    kind, reason = "CheckpointWaiting", "NotUploaded"
                elif not isinstance(error, StoreUnavailable):
                    reason, refused_until = REFUSED, refused_until or now + refusals
                    if now >= refused_until:
                        raise  # keep the problem: it explains why the process ends
                message = f"processes wait for a checkpoint: {message}"
                self._set_problem(Problem(type=kind, reason=reason, message=message))
                await asyncio.sleep(backoff.next())
            else:
                self._set_problem(None)
                return result

    async def _set_aside(self, resume: CheckpointId, message: str) -> None:
        LOG.error("checkpoint %s is damaged: %s", resume.name, message)
        try:
            await self.storage.set_aside(resume, message)
        except StoreError as error:
            # The next attempt's resolver will find the damage again.
            LOG.warning("checkpoint %s could not be set aside: %s", resume.name, error)
        self.damaged = Damaged(id=resume, message=message)
        self.news()

    def _set_problem(self, problem: Problem | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self.news()


async def _twice(resume: CheckpointId, fetch: Callable[[CheckpointId], Awaitable[_T]]) -> _T:
    """Retry a damaged read once before reporting it."""
    try:
        return await fetch(resume)
    except CheckpointDamaged as error:
        LOG.warning("reading checkpoint %s again: %s", resume.name, error)
        return await fetch(resume)


@dataclass(slots=True, kw_only=True)
class Prefetching:
    """Prefetches the likely resume point of the next attempt, while the gang gathers; of one agent.

    Best effort: no process gets anything from here, and an error shows up again, and is reported,
    when a process requests the checkpoint.
    """

    storage: AsyncRunStore
    ranks: Sequence[int]
    """Global ranks of this worker."""
    _wanted: CheckpointId | None = None

    def want(self, checkpoint: CheckpointId) -> None:
        """Prefetch this checkpoint, once."""
        if checkpoint != self._wanted:
            self._wanted = checkpoint
            background.run(self._read(checkpoint))

    def only(self, resume: CheckpointId | None) -> None:
        """The attempt begins with this resume point: stop prefetching any other."""
        self._wanted = resume

    async def _read(self, checkpoint: CheckpointId) -> None:
        began = time.monotonic()
        try:
            size = await self.storage.downloads.prefetch(
                checkpoint, self.ranks, lambda: self._wanted == checkpoint
            )
        except (TrainRunError, OSError) as error:
            LOG.info("checkpoint %s is not prefetched: %s", checkpoint.name, error)
        else:
            took = time.monotonic() - began
            LOG.info(
                "checkpoint %s: prefetched %.1f MB in %.1f s", checkpoint.name, size / 1e6, took
            )


@dataclass(slots=True, kw_only=True)
class Rechecking:
    """Reads again what another node reads wrongly, while the operator asks for it; of one agent.

    It reports a checkpoint as bad only after two wrong readings here, and sets it aside first.
    """

    storage: AsyncRunStore
    news: Callable[[], None]
    done: Rechecked | None = None
    """The result of the last order."""
    _order: Recheck | None = None
    _task: asyncio.Task[None] | None = None

    def want(self, order: Recheck | None) -> None:
        """Read this now; None: nothing (the last result stays)."""
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
        """The damage that two readings found; empty: none."""
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
