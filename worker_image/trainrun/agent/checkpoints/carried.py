"""A resume point that is on the workers' disks, carried from the attempt that saved it.

Layer: agent. The attempt starts from these files at once. Meanwhile each worker uploads its part,
and slot 0's agent writes the manifest when all parts are there. The attempt's record names this
checkpoint, so nothing fences it. Until then its files stay on this disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainrun._common.backoff import Backoff, ends_early
from trainrun.agent import background
from trainrun.agent.checkpoints.downloads import HeldCheckpoint
from trainrun.agent.checkpoints.overdue import waiting_problem
from trainrun.agent.checkpoints.staged import Step
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.checkpoints.torn_saves import set_aside
from trainrun.agent.checkpoints.uploads import Uploads
from trainrun.checkpoint.cache import CachedFile
from trainrun.checkpoint.records import DoneMarker
from trainrun.checkpoint.writer import Upload
from trainrun.contract.agent_state import Committed, Problem
from trainrun.contract.answer import Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import (
    CheckpointConflict,
    CheckpointFenced,
    CheckpointUnfinished,
    TrainRunError,
    TransferCancelled,
)

LOG = logging.getLogger("trainrun.agent")

HEAD_START = 3.0
"""Seconds in which processes start and load these files before the upload takes cores and disk."""
LOOK = 0.5
"""Seconds until slot 0's agent first looks again whether all parts are stored."""


@dataclass(slots=True, kw_only=True)
class CarriedPart:
    """This worker's part of one such checkpoint."""

    checkpoint: CheckpointId
    part: Step | None
    """None: it is in the store already."""
    described: DoneMarker | None
    """None: likewise."""
    slot: int
    workers: int
    storage: AsyncRunStore
    news: Callable[[], None]
    upload: Upload
    """Its progress; files that arrived before the restart are not sent again."""
    problem: Problem | None = None
    lost: bool = False
    """Its files are not those that were described: no attempt may start from them again."""
    _committed: Committed | None = None
    _committed_at: float = 0.0
    _at_once: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    @property
    def unfinished(self) -> bool:
        """Whether this worker must still upload its part, or write the manifest."""
        return self._task is not None and not self._task.done()

    @property
    def directories(self) -> tuple[Path, ...]:
        """Directories with files that must stay."""
        return tuple(self.part.files.values()) if self.part is not None else ()

    def committed(self, now: float) -> Committed | None:
        """The commit, if this agent has written it."""
        if self._committed is None:
            return None
        return replace(self._committed, age=max(0.0, now - self._committed_at))

    def start(self, *, after: float = 0.0) -> None:
        """Upload what is left to upload, after so many seconds; called again: at once."""
        if not after:
            self._at_once.set()
        if self._task is None and not self.lost:
            self._task = background.run(self._run(after))

    def pause(self) -> None:
        """Something newer is uploaded first."""
        if self._task is not None:
            self.upload = self.upload.restart()
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        """No attempt starts from it again: forget it."""
        self.pause()
        if self.directories:
            background.run(self.storage.remove([*self.directories]))
        self.part = None

    def link(self, file: CachedFile, path: Path) -> bool:
        """Make a file of this part appear at `path`; False: it is not there as it was described."""
        part, marker = self.part, self.described
        for item in marker.files if part is not None and marker is not None else ():
            if (item.name, item.size, item.crc32) == (file.name, file.size, file.crc32):
                assert part is not None
                place = part.files[item.ranks[0]] / item.name
                with contextlib.suppress(OSError):
                    facts = place.stat()
                    if (facts.st_size, facts.st_mtime_ns // 1000) == (item.size, item.modified):
                        _link(place, path)
                        return True
        return False

    async def _run(self, after: float) -> None:
        await ends_early(self._at_once, after)
        backoff = Backoff(LOOK, 15.0)
        while True:
            try:
                if await self._store():
                    return
            except TransferCancelled:
                return
            except CheckpointFenced as error:
                LOG.warning("%s", error)
                return
            except (CheckpointUnfinished, CheckpointConflict) as error:
                await self._give_up(str(error))
                return
            except (TrainRunError, OSError) as error:
                self._tell(waiting_problem(self.checkpoint.attempt, error))
            # Grows also while the parts of others are awaited: each look is a listing.
            await asyncio.sleep(backoff.next())

    async def _store(self) -> bool:
        """One try; True: nothing is left to do."""
        part, manifest = self.part, None
        if part is not None:
            assert self.described is not None
            manifest = await self.storage.write_part(
                self.checkpoint,
                # What is summed now is compared with what was described then.
                replace(part, digests={}),
                workers=self.workers,
                upload=self.upload,
                described=self.described,
            )
            self.part = None
            await self.storage.keep(self.checkpoint, part, self.upload, in_use=self.checkpoint)
            self._tell(None)
        if self.slot > 0 and manifest is None:
            return True
        manifest = manifest or await self.storage.commit(self.checkpoint)
        if manifest is None:
            return False
        LOG.info("checkpoint %s is committed", self.checkpoint.name)
        self._committed = Committed(id=self.checkpoint, size_bytes=manifest.size_bytes)
        self._committed_at = time.monotonic()
        self._tell(None)
        self.news()
        return True

    async def _give_up(self, message: str) -> None:
        LOG.error("%s", message)
        self.lost = True
        self._tell(Problem(type="CheckpointUnfinished", reason="Changed", message=message))
        await set_aside(self.storage, self.checkpoint, message)

    def _tell(self, problem: Problem | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self.news()


def carried_part(
    start: Start,
    before: CarriedPart | None,
    uploads: Uploads | None,
    *,
    news: Callable[[], None],
) -> CarriedPart | None:
    """The part that an attempt begins with; None: its resume point is in the store.

    `before` is that of the attempt before, which `uploads` belongs to.
    """
    point = start.resume if start.staged else None
    if before is not None:
        if before.checkpoint == point:
            return before
        before.close()
    if point is None or uploads is None or uploads.attempt != point.attempt:
        return None
    taken = uploads.take(point.step)
    if taken is None:
        return None
    return CarriedPart(
        checkpoint=point,
        part=taken[0],
        described=taken[1],
        slot=uploads.slot,
        workers=uploads.workers,
        storage=uploads.storage,
        news=news,
        upload=uploads.begun(point.step),
    )


def held_checkpoint(start: Start, carried: CarriedPart | None) -> HeldCheckpoint | None:
    """Where the processes of an attempt find its resume point; None: in the store."""
    if start.resume is None or not start.staged:
        return None
    return HeldCheckpoint(
        checkpoint=start.resume,
        link=carried.link if carried is not None else lambda _file, _path: False,
        others={holder.slot: holder.source for holder in start.holders},
    )


def _link(place: Path, path: Path) -> None:
    try:
        os.link(place, path)
    except OSError:  # another file system, or one without links
        shutil.copy2(place, path)
