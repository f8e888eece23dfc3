"""Uploads this worker's part of staged checkpoints in the background.

Layer: agent. One step at a time, oldest first, so that all workers store the same steps; newest
first once time is short, because its commit makes older steps obsolete. With uploadEvery it uploads
the steps that the operator has named, and those of which another worker has stored its part; while
no operator drops older steps, a full disk makes the oldest one go, on every worker alike. Store
errors delay uploads and are reported as a problem, but never end the training. Invariants: writes
nothing for a dropped step or after `close`; a worker without files writes its (empty) done marker
only for open steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainrun.agent import background
from trainrun.agent.checkpoints.lanes import run_lane
from trainrun.agent.checkpoints.overdue import waiting_problem
from trainrun.agent.checkpoints.retaining import Retaining
from trainrun.agent.checkpoints.staged import StagedSteps, Step
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.checkpoints.torn_saves import AlternatingSaves, TornSteps
from trainrun.checkpoint.records import DoneMarker, Manifest
from trainrun.checkpoint.writer import Upload
from trainrun.contract.agent_state import Committed, Problem
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import (
    CheckpointConflict,
    CheckpointDamaged,
    CheckpointUnfinished,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TrainRunError,
)

LOG = logging.getLogger("trainrun.agent")


@dataclass(slots=True, kw_only=True)
class Uploads:
    """The uploads of one attempt."""

    attempt: int
    slot: int
    workers: int
    staged: StagedSteps
    storage: AsyncRunStore
    news: Callable[[], None]
    """Called when something changed that the operator waits for."""
    resume: CheckpointId | None = None
    """What the attempt resumed from; its processes may be reading it."""
    before_commit: Callable[[], Awaitable[None]] | None = None
    """Awaited before a part is uploaded and before a commit: stores the metrics of the step first,
    since an attempt that resumes from it does not report them again. Must not raise."""
    problem: Problem | None = None
    """Why checkpoints wait to be stored."""
    fatal: Problem | None = None
    committed: Committed | None = None
    turns: AlternatingSaves = field(default_factory=AlternatingSaves)
    torn: TornSteps = field(init=False)
    retaining: Retaining = field(init=False)
    only: frozenset[int] | None = None
    """Upload only these steps, while an order says so; None: see `keep`."""
    keep: int = 0
    """Upload only what is due until this many complete steps are on the disk; 0: upload all."""
    describes: frozenset[int] = frozenset()
    """Describe these steps, and upload none: the next attempt starts from the disks."""
    _described: dict[int, DoneMarker] = field(default_factory=dict)
    _summed: int = -1
    """The newest step that was summed ahead."""
    _newest_first: bool = False
    _committed_at: float = 0.0
    _stored: dict[int, set[int]] = field(default_factory=dict)
    """Slots whose part of a step is in the store."""
    _handles: dict[int, Upload] = field(default_factory=dict)
    _wakes: list[asyncio.Event] = field(default_factory=list)
    """One per lane, so that no lane consumes another's wake-up."""
    _hurries: list[asyncio.Event] = field(default_factory=list)
    """One per lane: ends its pause after an error."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """No step is torn yet, and nothing is to be deleted."""
        self.retaining = Retaining(attempt=self.attempt, storage=self.storage, news=self.news)
        self.torn = TornSteps(attempt=self.attempt, storage=self.storage)

    def start(self) -> None:
        """Start the lanes."""
        work = [(self._upload_next, self._report_trouble), (self._sum_next, lambda _: None)]
        if self.slot == 0:
            work += [
                (self._commit_next, self._report_trouble),
                (self.retaining.next, self.retaining.report),
            ]
            # Leftovers of killed agents may take the room that the first commit needs.
            self.retaining.due = True
        self._wakes = [asyncio.Event() for _ in work]
        self._hurries = [asyncio.Event() for _ in work]
        self._tasks = [
            background.run(run_lane(steps, trouble, wake, hurry, self._fail))
            for (steps, trouble), wake, hurry in zip(work, self._wakes, self._hurries, strict=True)
        ]

    def wake(self) -> None:
        """A step was staged or passed: check again."""
        for wake in self._wakes:
            wake.set()

    def hurry(self) -> None:
        """Time is short: upload the newest step first, and let lanes that pause after a store error
        retry at once. A running upload is not interrupted."""
        self._newest_first = True
        for hurry in self._hurries:
            hurry.set()

    def close(self) -> None:
        """Write nothing more for this attempt; give up the current upload."""
        for handle in self._handles.values():
            handle.cancel()
        for task in self._tasks:
            task.cancel()
        self.torn.close()

    def order(self, steps: frozenset[int], *, in_place: bool) -> bool:
        """Upload only these steps, or describe them; returns whether that is new."""
        only, describes = (frozenset[int](), steps) if in_place else (steps, frozenset[int]())
        if (self.only, self.describes) == (only, describes):
            return False
        if in_place:
            self.abandon()
        self.only, self.describes = only, describes
        return True

    @property
    def holds(self) -> tuple[CheckpointId, ...]:
        """Checkpoints whose part is described or stored."""
        steps = (step for step in {*self._described, *self.describes} if self._has(step))
        return tuple(CheckpointId(attempt=self.attempt, step=step) for step in steps)

    def _has(self, step: int) -> bool:
        entry = self.staged.find(step)
        return entry is not None and (entry.uploaded or step in self._described)

    def take(self, step: int) -> tuple[Step | None, DoneMarker | None] | None:
        """The part of a step, unless it is stored, and its description; None: it is not here."""
        entry = self.staged.find(step)
        if entry is None or not self._has(step):
            return None
        return (None, None) if entry.uploaded else (entry, self._described[step])

    def begun(self, step: int) -> Upload:
        """An upload of this step that continues where the one of this attempt stopped."""
        return self._handles.get(step, Upload()).restart(doubt=True)

    def finish(self) -> None:
        """The agent ends: upload what is left, the newest first."""
        self.only, self.keep, self.describes = None, 0, frozenset()
        self.wake()
        self.hurry()

    def abandon(self) -> None:
        """Give up the current upload, and upload nothing until an order names steps again."""
        self.only = frozenset()
        self._handles = {step: handle.restart() for step, handle in self._handles.items()}

    def stored(self, step: int, slots: Iterable[int]) -> None:
        """The parts of these slots of a step are in the store, according to others."""
        if step > self.staged.committed:
            self._stored.setdefault(step, set()).update(slots)
        if self.slot in self._stored.get(step, ()):
            self.torn.stored(step)

    def drop(self, step: int, *, torn: bool = False) -> None:
        """Forget a step on order, or because it is `torn` and will not be committed."""
        handle = self._handles.pop(step, None)
        if handle is not None:
            handle.cancel()
        self._described.pop(step, None)
        self.remove(self.staged.drop(step, torn=torn))

    def give_up(self, step: int, message: str) -> None:
        """Forget a step on all ranks, since a rank could not save its files."""
        self.torn.add(step, message, aside=False, reason="SaveFailed")
        self.drop(step, torn=True)
        self.news()

    def look(self) -> None:
        """Give up steps that were reported before their save had ended."""
        for step, message in self.torn.late():
            self._tear(step, message)

    def saw_commit(self, checkpoint: CheckpointId, size_bytes: int = 0) -> None:
        """A checkpoint of this attempt is committed, by this agent or according to others."""
        last = self.committed
        if last is None or (last.id, last.size_bytes) < (checkpoint, size_bytes):
            same = last is not None and last.id == checkpoint
            self.committed = Committed(id=checkpoint, size_bytes=size_bytes)
            self._committed_at = self._committed_at if same else time.monotonic()
            self.retaining.due = self.retaining.due or not same
            self.torn.problem = self.torn.problem if checkpoint.step in self.torn else None
        for step in [step for step in self._handles if step <= checkpoint.step]:
            self._handles.pop(step).cancel()  # obsolete, and its files are deleted now
        self.remove(self.staged.commit(checkpoint.step))
        self.torn.stored(checkpoint.step)
        self._stored = {
            step: slots for step, slots in self._stored.items() if step > checkpoint.step
        }

    def committed_now(self, now: float) -> Committed | None:
        """The newest known commit with its age."""
        if self.committed is None:
            return None
        return replace(self.committed, age=max(0.0, now - self._committed_at))

    def unfinished(self, steps: Iterable[int] | None = None, *, in_place: bool = False) -> bool:
        """Whether a complete step must still be uploaded, or committed by slot 0: one of `steps`,
        or one that the current order allows. `in_place`: must still be described."""
        if self.fatal is not None:
            return False
        wanted = self.only if steps is None else set(steps)
        left = [entry.step for entry in self.staged.uploadable()]
        if in_place:
            left = [step for step in left if step not in self._described]
        elif self.slot == 0:
            left += self._committable()
        return any(wanted is None or step in wanted for step in left)

    def _fail(self, problem: Problem) -> None:
        self.fatal = problem
        self.news()

    async def _upload_next(self) -> bool:
        self.look()
        trouble: StoreError | OSError | None = None
        tried: set[int] = set()
        # Looked up again each time: a step may have been dropped meanwhile.
        while (entry := next(iter(self._allowed(tried)), None)) is not None:
            tried.add(entry.step)
            try:
                await (self._describe(entry) if self.describes else self._upload(entry))
            except StoreUnavailable:
                raise
            except CheckpointUnfinished as error:
                self._tear(entry.step, str(error))
            except CheckpointConflict as error:
                self._conflict(entry.step, error)
            except (StoreError, OSError) as error:
                # It may concern only these files (unreadable, or always changing). Try the next
                # step, which would replace this one; waiting for this one might never end.
                trouble = error
            else:
                return True
        if trouble is not None:
            raise trouble
        return False

    async def _upload(self, entry: Step) -> None:
        if self.before_commit is not None:
            await self.before_commit()
        handle = self._handles.setdefault(entry.step, Upload())
        # A snapshot: more files may arrive during the upload.
        part = replace(entry, files=dict(entry.files), digests=dict(entry.digests))
        checkpoint = CheckpointId(attempt=self.attempt, step=entry.step)
        manifest = await self.storage.write_part(
            checkpoint, part, workers=self.workers, upload=handle
        )
        self._handles.pop(entry.step, None)
        self._over_trouble()
        self.staged.uploaded(entry.step, part.files)
        self.stored(entry.step, [self.slot])
        background.run(self.storage.keep(checkpoint, part, handle, in_use=self.resume))
        if manifest is not None:
            self._committed(manifest)
        self.wake()
        self.news()

    async def _describe(self, entry: Step) -> None:
        if self.before_commit is not None:
            await self.before_commit()
        handle = self._handles.setdefault(entry.step, Upload())
        checkpoint = CheckpointId(attempt=self.attempt, step=entry.step)
        self._described[entry.step] = await self.storage.describe_part(
            checkpoint, entry, workers=self.workers, upload=handle
        )
        self._over_trouble()
        self.news()

    async def _sum_next(self) -> bool:
        """Sum the newest step that is not due: a crash would have to describe it."""
        entry = next(reversed([one for one in self.staged.uploadable() if one.files]), None)
        held = self.keep and self.only is None and not self.describes
        if held and entry is not None and not entry.due and entry.step > self._summed:
            self._summed, handle = entry.step, self._handles.setdefault(entry.step, Upload())
            # Whoever needs the sums meets the same error, and tells it.
            with contextlib.suppress(TrainRunError, OSError):
                await self.storage.sum_ahead(entry, handle)
        return False

    def _conflict(self, step: int, error: CheckpointConflict) -> None:
        """A file with two sizes, in a folder that ranks share, may still have been written.

        Allow this for one checkpoint; raise the error for the next one, or if it cannot be that.
        """
        if not (error.sizes_differ and self.staged.copied(step)) or self.torn.problem is not None:
            raise error
        self._tear(step, str(error), aside=False)  # no worker can commit it

    def _tear(self, step: int, message: str, *, aside: bool = True) -> None:
        self.torn.add(step, message, aside=aside)
        self.drop(step, torn=True)
        if step <= self.staged.committed or self.slot in self._stored.get(step, ()):
            self.torn.stored(step)
        self.news()

    async def _commit_next(self) -> bool:
        self.look()
        trouble: TrainRunError | None = None
        for step in self._committable():
            checkpoint = CheckpointId(attempt=self.attempt, step=step)
            if self.before_commit is not None:
                await self.before_commit()
            try:
                manifest = await self.storage.commit(checkpoint)
            except CheckpointConflict as error:
                self._conflict(step, error)
                continue
            except CheckpointDamaged as error:
                trouble = error  # a later one may be good
                continue
            if manifest is None:
                # No event will announce it, so retry until the listing shows it.
                trouble = StoreUnavailable(
                    f"{checkpoint.name}: the listing does not show the files of every worker yet"
                )
                continue
            self._over_trouble()
            self._committed(manifest)
            self.news()
            return True
        if trouble is not None:
            raise trouble
        return False

    def _allowed(self, tried: set[int]) -> list[Step]:
        uploadable = self.staged.uploadable()
        on_disk = [entry for entry in uploadable if entry.files]
        oldest = on_disk[0].step if on_disk and len(on_disk) >= self.keep else -1
        return [
            entry
            for entry in (reversed(uploadable) if self._newest_first else uploadable)
            if entry.step not in tried and self._is_wanted(entry, oldest)
        ]

    def _is_wanted(self, entry: Step, oldest: int) -> bool:
        if self.describes:
            return entry.step in self.describes and entry.step not in self._described
        if self.only is not None or not self.keep:
            return self.only is None or entry.step in self.only
        return entry.due or bool(self._stored.get(entry.step)) or entry.step == oldest

    def _committable(self) -> list[int]:
        return [
            step
            for step, slots in sorted(self._stored.items())
            if len(slots) == self.workers and step > self.staged.committed and step not in self.torn
        ]

    def _committed(self, manifest: Manifest) -> None:
        LOG.info("checkpoint %s is committed (%d bytes)", manifest.id.name, manifest.size_bytes)
        self.turns.saw(manifest)
        self.saw_commit(manifest.id, manifest.size_bytes)
        self.retaining.due = True
        self.wake()

    def _report_trouble(self, error: Exception) -> None:
        if isinstance(error, StoreFull):
            self.retaining.due = True  # there may be more to delete now than at the last commit
            self.wake()
        problem = waiting_problem(self.attempt, error)
        if problem != self.problem:
            self.problem = problem
            self.news()

    def _over_trouble(self) -> None:
        if self.problem is not None:
            LOG.info("the store works again")
            self.problem = None
            self.news()

    def remove(self, directories: list[Path]) -> None:
        """Delete local directories in the background."""
        if directories:
            background.run(self.storage.remove(directories))
