"""Checkpoint steps staged on this worker: the progress of each, and room for more.

Layer: agent, pure bookkeeping: no I/O. Words: a rank has *passed* a step when nothing more comes
from it for that step: it brought its files, reported that it has none, reported a later step or
exited 0. A report without files decides nothing: the files may follow. If a rank has announced
files whose save is *pending*, it passes that step only with them. The worker's part of a step
is *complete* when all its ranks have passed, or one reported its files as the whole checkpoint.
Where the agent brings the files, from the script's folder, it says for each step when the part is
final: a later save or an end says nothing about it.

`report(checkpoint=)` waits while the backlog is full: at most `max_pending` steps with files that
are not in the store yet, and with uploadEvery `MORE_ROOM` more. If a step has room, it has room for
every rank: otherwise one rank's files could block those that complete them. A step that only waits
for ranks to report their next step takes no room: those ranks may wait for the rank that asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainrun.contract.messages import Report
from trainrun.contract.staged_parts import StagedStep

MORE_ROOM = 3
"""With uploadEvery: room for checkpoints beside those that wait for upload. Two that every rank has
staged, and a newer one; with a buddy one more, which is being copied."""

EVERY_STEP = 10**15
"""Above any step."""

REMEMBERED_DROPS = 64
"""Bound of `AgentState.dropped`."""


@dataclass(slots=True, kw_only=True)
class Step:
    """One checkpoint step."""

    step: int
    first: float
    """When it was first reported."""
    files: dict[int, Path] = field(default_factory=dict)
    """Directories by rank that brought files."""
    digests: dict[int, int] = field(default_factory=dict)
    """Of their content when it was reported; absent if the library sent none."""
    copied: bool = False
    """They are a copy of a directory that other ranks may also save into."""
    metrics: Mapping[str, object] = field(default_factory=dict)
    """Those of the lowest rank that brought files with metrics."""
    metrics_rank: int = -1
    metadata: Mapping[str, object] = field(default_factory=dict)
    """Likewise."""
    metadata_rank: int = -1
    whole: bool = False
    after_save: bool = False
    due: bool = False
    """With uploadEvery: the operator has asked for it."""
    uploaded: bool = False


class StagedSteps:
    """The steps of one attempt."""

    def __init__(self, ranks: tuple[int, ...], *, by_agent: bool = False) -> None:
        """`by_agent`: only `pass_all` and `pass_every` pass steps."""
        self._ranks = ranks
        self._by_agent = by_agent
        self._final: set[int] = set()
        self._all_final = False
        self._steps: dict[int, Step] = {}
        self._last: dict[int, int] = {}
        self._passed: dict[int, int] = {}
        """Newest step that each rank has passed."""
        self._done: set[int] = set()
        self._dropped: list[int] = []
        self.committed = -1
        """The newest step known to be committed, -1 before the first."""
        self._lacking: set[tuple[int, int]] = set()
        """Ranks and steps whose files could not be staged."""
        self._pending: dict[tuple[int, int], Report] = {}
        """Reports by rank and step whose save has not ended."""

    @property
    def last_steps(self) -> tuple[int | None, ...]:
        """Last step reported by each rank."""
        return tuple(self._last.get(rank) for rank in self._ranks)

    @property
    def passed_by_all(self) -> int:
        """Newest step up to which all ranks that have not exited 0 have passed; -1: none."""
        if self._by_agent:
            return EVERY_STEP if self._all_final else -1
        passed = [self._passed.get(rank, -1) for rank in self._ranks if rank not in self._done]
        return min([*passed, *(step - 1 for _, step in self._pending)], default=-1)

    def is_over(self, step: int) -> bool:
        """Whether nobody needs files of `step`: it or a later one is committed, or it was
        dropped."""
        return step <= self.committed or step in self._dropped

    def last_step(self, rank: int) -> int:
        """The last step that `rank` reported, -1 before the first."""
        return self._last.get(rank, -1)

    @property
    def dropped(self) -> tuple[int, ...]:
        """Steps dropped on order, the last ones."""
        return tuple(self._dropped[-REMEMBERED_DROPS:])

    def reports(self, rank: int, step: int, *, nothing: bool = False) -> bool:
        """`rank` reported `step`; `nothing`: with no files for it.

        Returns whether a staged step waited for that.
        """
        self._last[rank] = max(self.last_step(rank), step)
        before, now = self._passed.get(rank, -1), self._passes(rank, step if nothing else step - 1)
        return any(before < staged <= now for staged in self._steps)

    def exited_well(self, rank: int) -> None:
        """`rank` has exited 0: it passes every step."""
        if self._by_agent:
            return
        self._done.add(rank)
        for left in [key for key in self._pending if key[0] == rank]:
            del self._pending[left]
            self._lacking.add(left)

    def pend(self, rank: int, report: Report, *, after_save: bool, now: float) -> None:
        """`rank` will bring the files of a step when their save has ended."""
        self._pending[rank, report.step] = report
        if not self.is_over(report.step):
            entry = self._steps.setdefault(report.step, Step(step=report.step, first=now))
            entry.after_save = entry.after_save or after_save

    def saved(self, rank: int, step: int, now: float) -> Report:
        """The save of a step has ended; return what `rank` reported when it began."""
        entry = self._steps.get(step)
        if entry is not None and not entry.files:
            entry.first = now  # other ranks are awaited from now on
        return self._pending.pop((rank, step), Report(step=step))

    def save_failed(self, rank: int, step: int) -> bool:
        """The save of a step has failed; return whether that costs all ranks its checkpoint."""
        self._pending.pop((rank, step), None)
        self._passes(rank, step)
        entry = self._steps.get(step)
        return not self.is_over(step) and not (entry is not None and entry.whole)

    def bring(
        self,
        rank: int,
        report: Report,
        directory: Path,
        *,
        after_save: bool,
        now: float,
    ) -> bool:
        """`rank` brings the files of a step; False if they are no longer needed."""
        step = report.step
        self._lacking.discard((rank, step))
        self._passes(rank, step)
        if self.is_over(step):
            return False
        entry = self._steps.setdefault(step, Step(step=step, first=now))
        if report.whole and entry.uploaded:
            # The worker's part without them is stored and deleted here; the files that make the
            # checkpoint whole must still be uploaded.
            entry.files, entry.digests, entry.uploaded = {}, {}, False
        entry.files[rank] = directory
        entry.copied = entry.copied or not report.left
        if report.digest:
            entry.digests[rank] = report.digest
        entry.whole = entry.whole or report.whole
        entry.after_save = entry.after_save or after_save
        if report.metrics and (entry.metrics_rank < 0 or rank < entry.metrics_rank):
            entry.metrics, entry.metrics_rank = report.metrics, rank
        if report.metadata and (entry.metadata_rank < 0 or rank < entry.metadata_rank):
            entry.metadata, entry.metadata_rank = report.metadata, rank
        return True

    def pass_all(self, step: int) -> None:
        """Nothing more comes from any rank of this worker for `step`."""
        self._final.add(step)
        for rank in self._ranks:
            self._passes(rank, step)

    def pass_every(self) -> None:
        """Nothing more comes from any rank of this worker."""
        self._all_final = True

    def copied(self, step: int) -> bool:
        """Whether a rank of this worker brought a copy."""
        entry = self._steps.get(step)
        return entry is not None and entry.copied

    def lacks(self, rank: int, step: int) -> None:
        """`rank` has files for a step that could not be staged; it may still bring them."""
        self._lacking.add((rank, step))

    def lost(self) -> list[int]:
        """Steps that a rank has passed without the files that it had for them.

        Returns each once: a checkpoint without them would look complete.
        """
        over = {(rank, step) for rank, step in self._lacking if self.passed(rank, step)}
        self._lacking -= over
        return sorted({step for _, step in over})

    def open(self, steps: Iterable[int], now: float) -> None:
        """Other workers have files for these steps: this worker must report that it has none."""
        for step in steps:
            if not self.is_over(step):
                self._steps.setdefault(step, Step(step=step, first=now))

    def order(self, steps: Iterable[int]) -> None:
        """Upload these steps, now and after later answers."""
        for step in steps:
            if step in self._steps:
                self._steps[step].due = True

    def passed(self, rank: int, step: int) -> bool:
        """Whether nothing more comes from `rank` for `step`."""
        if (rank, step) in self._pending:
            return False
        if self._by_agent:
            return self._all_final or step in self._final
        return rank in self._done or self._passed.get(rank, -1) >= step

    def only_open(self, step: int) -> bool:
        """Whether `step` only waits for the next report of ranks that have reported it."""
        return all(
            self.last_step(rank) >= step and (rank, step) not in self._pending
            for rank in self.not_passed_by(step)
        )

    def has_pending(self, step: int) -> bool:
        """Whether a rank of this worker still saves its files for `step`."""
        return any(step == pending for _, pending in self._pending)

    def _passes(self, rank: int, step: int) -> int:
        self._passed[rank] = max(self._passed.get(rank, -1), step)
        return self._passed[rank]

    def complete(self, step: int) -> bool:
        """Whether the worker's part of `step` is complete."""
        entry = self._steps.get(step)
        if entry is None:
            return False
        return entry.whole or all(self.passed(rank, step) for rank in self._ranks)

    def not_passed_by(self, step: int) -> tuple[int, ...]:
        """Ranks that have not passed `step`."""
        return tuple(rank for rank in self._ranks if not self.passed(rank, step))

    def uploadable(self) -> list[Step]:
        """Steps whose part is complete and not in the store, oldest first."""
        return [
            entry
            for step, entry in sorted(self._steps.items())
            if not entry.uploaded and step > self.committed and self.complete(step)
        ]

    def pending(self) -> list[Step]:
        """Steps with files on this worker's disk that are not in the store."""
        return [entry for entry in self._steps.values() if entry.files and not entry.uploaded]

    def find(self, step: int) -> Step | None:
        """What is staged of a step."""
        return self._steps.get(step)

    def incomplete(self) -> list[Step]:
        """Steps that a rank of this worker has not passed, oldest first."""
        return [entry for step, entry in sorted(self._steps.items()) if not self.complete(step)]

    def uploaded(self, step: int, ranks: Iterable[int]) -> None:
        """The worker's part of `step`, with the files of these ranks, is in the store."""
        entry = self._steps.get(step)
        if entry is not None and set(entry.files) <= set(ranks):
            entry.uploaded = True  # otherwise files arrived during the upload

    def commit(self, step: int) -> list[Path]:
        """`step` is committed, so older ones are obsolete. Returns directories to remove."""
        self.committed = max(self.committed, step)
        over = [entry for entry in self._steps.values() if entry.step <= self.committed]
        for entry in over:
            entry.uploaded = True
            # A requested save stays listed, so that the operator sees it however fast it was.
            if not entry.after_save:
                del self._steps[entry.step]
        return [directory for entry in over for directory in entry.files.values()]

    def drop(self, step: int, *, torn: bool = False) -> list[Path]:
        """Forget `step` on order, or because it is `torn`; returns directories to remove."""
        entry = self._steps.get(step)
        if entry is not None and entry.uploaded and not torn:
            return []  # too late: its marker is written, and its room is free already
        if not self.is_over(step):
            self._dropped.append(step)
        self._steps.pop(step, None)
        return list(entry.files.values()) if entry is not None else []

    def describe(self, now: float) -> tuple[StagedStep, ...]:
        """The steps as heartbeats carry them, ascending."""
        return tuple(
            StagedStep(
                step=step,
                ranks=tuple(sorted(entry.files)),
                complete=self.complete(step),
                uploaded=entry.uploaded,
                whole=entry.whole,
                after_save=entry.after_save,
                due=entry.due,
                age=max(0.0, now - entry.first),
            )
            for step, entry in sorted(self._steps.items())
        )


@dataclass(slots=True, kw_only=True)
class StagingCapacity:
    """Decides which ranks may stage; of one attempt."""

    staged: StagedSteps
    max_pending: int
    _granted: dict[int, int] = field(default_factory=dict)
    """By rank, the step that it may stage and has not reported yet."""
    _waiters: set[asyncio.Future[None]] = field(default_factory=set)
    _since: dict[int, float] = field(default_factory=dict)
    _stalled: dict[int, float] = field(default_factory=dict)

    async def wait(self, rank: int, step: int) -> None:
        """Wait until `rank` may stage its files for `step`."""
        self._granted.pop(rank, None)
        self._since[rank] = time.monotonic()
        try:
            while not self.has_room(step):
                change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.add(change)
                try:
                    await change
                finally:
                    self._waiters.discard(change)
            self._granted[rank] = step
        finally:
            waited = time.monotonic() - self._since.pop(rank)
            self._stalled[rank] = self._stalled.get(rank, 0.0) + waited

    def used(self, rank: int) -> None:
        """`rank` has reported: its grant is used."""
        self._granted.pop(rank, None)

    def limit(self, max_pending: int) -> None:
        """The user has edited the limit."""
        self.max_pending = max_pending
        self.wake()

    def wake(self) -> None:
        """The backlog may have changed."""
        for change in self._waiters:
            if not change.done():
                change.set_result(None)

    @property
    def wait_for_store(self) -> bool:
        """A rank waits for an upload, not only for other ranks' files."""
        return bool(self._since) and any(
            self.staged.complete(entry.step) for entry in self.staged.pending()
        )

    def stall(self, now: float) -> float:
        """Seconds waited so far by the rank that has waited longest."""
        waits = {rank: now - since for rank, since in self._since.items()}
        ranks = {*self._stalled, *waits}
        return max((self._stalled.get(r, 0.0) + waits.get(r, 0.0) for r in ranks), default=0.0)

    def has_room(self, step: int) -> bool:
        """Whether files for `step` may be staged now."""
        pending = {entry.step for entry in self.staged.pending()}
        taken = {step for step in pending if not self._waits_for_a_word(step)}
        taken |= set(self._granted.values())
        unwanted = step <= self.staged.committed or step in self.staged.dropped
        return unwanted or step in pending | taken or len(taken) < self.max_pending

    def _waits_for_a_word(self, step: int) -> bool:
        return not self.staged.complete(step) and self.staged.only_open(step)
