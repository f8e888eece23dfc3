"""Stores what a script saves into its own folder in one attempt, after putting back what it needs.

Layer: agent. While the processes live it looks at the folder every few seconds and stages the
newest complete entry, on the same way into the store as `report(checkpoint=)`. When they have ended
it stages what it had seen complete before. Invariants: nothing is taken before the script is known
to have resumed from what it was given; nothing that was there before the first attempt is touched.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from trainrun.agent import background
from trainrun.agent.checkpoints.bringing import Bringing
from trainrun.agent.checkpoints.fetching import Fetching
from trainrun.agent.folder import looking, taking
from trainrun.agent.folder.agreeing import GangPart, place_of
from trainrun.agent.folder.arguments import NoSuchFile
from trainrun.agent.folder.entries import (
    FolderEntry,
    Look,
    Quiet,
    changed,
    entries_of,
    hard_links,
    is_log,
    loose,
)
from trainrun.agent.folder.gang import GangFolder, has_numbers
from trainrun.agent.folder.notes import FolderMemory, Printed
from trainrun.agent.folder.restoring import FolderRestore, RestoreFailed
from trainrun.agent.folder.resumption import Resumption
from trainrun.agent.processes.group import Launch, ProcessGroup
from trainrun.agent.training.step_clock import StepClock
from trainrun.contract.agent_state import Problem
from trainrun.contract.answer import FolderRule, Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import OutputProgress
from trainrun.contract.messages import Report

LOG = logging.getLogger("trainrun.agent")

NO_FOLDER = FolderRule(path="")
"""The script's folders are its own business."""
FASTEST_LOOK, SLOWEST_LOOK = 0.5, 30.0
"""Seconds between two looks; half of `settle` between them."""
TRIES = 3
"""Takes that fail in a row before the condition says so."""
UNMATCHED, RESTLESS, ABSENT = 30, 60, 120
"""Looks at files and no save, at saves and none quiet, and while steps are printed at no folder."""


@dataclass(slots=True, kw_only=True)
class FolderCheckpoints:
    """The folder in one attempt."""

    rule: FolderRule
    base: Path
    """Working directory of the script."""
    memory: FolderMemory
    start: Start
    bringing: Bringing
    fetching: Fetching
    processes: ProcessGroup
    output: Callable[[float], OutputProgress | None]
    """What the output shows, at a time on the monotonic clock."""
    news: Callable[[], None]
    restoring: bool = False
    """The processes wait for the folder."""
    problem: Problem | None = None
    over: bool = False
    """All processes have ended, and what is worth it is staged."""
    _restored: FolderRestore = field(init=False)
    _quiet: Quiet = field(init=False)
    _resumption: Resumption = field(init=False)
    _printed: Printed = field(default_factory=Printed)
    _seen: FolderEntry | None = None
    """The newest entry that was complete while the processes lived."""
    _taken: FolderEntry | None = None
    _step: int = 0
    """Of the last checkpoint."""
    _gang: GangFolder | None = None
    """Where several workers save entries with numbers."""
    _failures: int = 0
    _unmatched: int = 0
    """Looks in a row that showed files and no save."""
    _absent: int = 0
    """Looks in a row at no folder, while steps are printed."""
    _next_look: float = 0.0
    _looking: asyncio.Task[None] | None = None
    _ending: asyncio.Task[None] | None = None
    _restore: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        """Nothing was looked at yet."""
        self._quiet = Quiet(settle=self.rule.settle)
        self._restored = FolderRestore(
            rule=self.rule,
            base=self.base,
            memory=self.memory,
            start=self.start,
            fetching=self.fetching,
            refuse=self.refuse,
            slot=self._slot,
        )
        self._resumption = Resumption(
            restored=self._restored, printed=self._printed, fails=self._fails
        )
        if self.rule.carry and self.start.workers > 1 and has_numbers(self.rule.newest):
            self._gang = GangFolder(
                top=self.top,
                look_at_folder=self._restored.look,
                part=GangPart(settle=self.rule.settle, complete=self.rule.complete),
                bringing=self.bringing,
                processes=self.processes,
                take=self._take,
                brought=self._restored.brought,
                resumed=self._resumption.allows,
                fails=self._fails,
            )
        self._step = self.start.resume.step if self.start.resume is not None else 0

    @property
    def top(self) -> Path:
        """The folder."""
        return self._restored.top

    @property
    def _slot(self) -> int:
        return self.bringing.uploads.slot

    @property
    def _known(self) -> Look | None:
        """The folder when the processes started; None: they have not."""
        return self._restored.known

    @property
    def busy(self) -> bool:
        """The attempt has not ended here, although no process lives: what is left is not staged."""
        return self.restoring or (self._known is not None and not self.over)

    def begin(self, launches: list[Launch], clock: StepClock) -> None:
        """Put the folder back; then start the processes, or record why not. No step is owed."""

        async def work() -> None:
            try:
                ready = await self._restored.prepare(launches)
            except (RestoreFailed, NoSuchFile, OSError) as error:
                why = f"the folder {self.rule.path} cannot be restored: {error}"
                self.processes.refuse(launches, why)
            else:
                self._seen = self._restored.left
                if self._gang is not None:
                    self._gang.part.role = self._restored.role
                self.processes.start(ready)
            self.restoring = False
            clock.end_wait(time.monotonic())
            self.news()

        if not self.rule.path:
            self.processes.start(launches)
            return
        self.restoring = True
        clock.begin_wait()
        self._restore = background.run(work())

    def cancel(self) -> None:
        """Start no processes any more."""
        if self.restoring and self._restore is not None:
            self._restore.cancel()
            self.restoring = False

    def refuse(self, reason: str, message: str) -> None:
        """End the run: the next attempt would do the same."""
        uploads = self.bringing.uploads
        if uploads.fatal is None:
            LOG.error("%s", message)
            uploads.fatal = Problem(type=reason, reason=reason, message=message)
            self.news()

    def hear(self, steps: Iterable[int]) -> None:
        """Workers have files for these steps."""
        if self._gang is not None and self._gang.hear(steps, time.monotonic()):
            self._next_look = 0.0

    def reported(self, rank: int, report: Report) -> None:
        """A rank has reported a step: without files of its own, or the run ends."""
        if self.rule.path and (report.files is not None or report.pending):
            self.refuse(
                "FolderRefused",
                f"rank {rank} reported a checkpoint of step {report.step}, but checkpoint.folder "
                "is set. Remove the folder from the spec, or checkpoint= from the report",
            )

    def tick(self, now: float) -> None:
        """Called about once a second."""
        if self._known is None:
            return
        self._printed.note(self.output(now), time.time_ns())
        ends = [process.exit for process in self.processes.all.values()]
        alive = self.processes.alive and all(end is None or end.well for end in ends)
        resting = self._looking is None or self._looking.done()
        if alive and resting and now >= self._next_look:
            pause = min(max(self.rule.settle / 2, FASTEST_LOOK), SLOWEST_LOOK)
            self._next_look = now + pause
            self._looking = background.run(self._look(self._known))

    def ended(self) -> bool:
        """No process lives: stage what is left; True once that is done."""
        self.cancel()
        if self._known is None:
            self.over = True
        elif self._ending is None:
            self._printed.note(self.output(time.monotonic()), time.time_ns())
            self._ending = background.run(self._end(self._known))
        return self.over

    async def _look(self, known: Look) -> None:
        try:
            look = await self._restored.look_alone()
            new = self._new(look, known)
            quiet = self._quiet.look(new, time.monotonic())
            if self._quiet.restless >= RESTLESS:
                why = f"no save stays unchanged for settle ({self.rule.settle:g} s)"
                self._fails("Changing", f"{why}; set settle below the time between two saves")
            if self._gang is not None and self._gang.has(new):
                await self._gang.look(look, new, quiet, time.monotonic())
                if not new:
                    await self._tell_unmatched(look, known)
                return
            why, complete = "", self.rule.complete
            for entry in reversed(quiet):
                if entry.is_over(self._taken):
                    break
                found = await asyncio.to_thread(looking.unfinished, self.top, entry, complete)
                if not found and await asyncio.to_thread(looking.live, self.processes.living_pids):
                    self._seen = entry
                    room = self.bringing.rooms.has_room(self._step_of(entry))
                    if self._resumption.allows(entry) and room:
                        await self._take(entry, look)
                    break
                why = why or found
            if why:
                self._fails("Incomplete", why)
            elif not new:
                await self._tell_unmatched(look, known)
        except OSError as error:
            self._fails("Unreadable", str(error))

    async def _tell_unmatched(self, look: Look, known: Look) -> None:
        """The folder fills, or training goes on without one: `newest` or `path` may be mistyped."""
        if self._slot:
            return
        new = [name for name in sorted(changed(look, known)) if not is_log(name)]
        unmatched = new and not entries_of(look, self.rule.newest)
        absent = self._printed.last is not None and not await asyncio.to_thread(self.top.is_dir)
        self._unmatched = self._unmatched + 1 if unmatched else 0
        self._absent = self._absent + 1 if absent else 0
        if self._absent >= ABSENT:
            self._fails("NoFolder", f"{self.top} does not exist")
        elif self._unmatched >= UNMATCHED:
            some = f"{new[0]} does not" + (f", nor do {len(new) - 1} others" if new[1:] else "")
            self._fails("NothingMatches", f"nothing matches newest: {self.rule.newest} ({some})")

    def _new(self, look: Look, known: Look) -> list[FolderEntry]:
        """Entries that have changed since the processes started. Without a number slot 0's is that
        of all workers: others overwrite theirs at other times."""
        new = (e for e in entries_of(look, self.rule.newest) if not e.same(known))
        return [e for e in new if self._slot == 0 or (self.rule.carry and e.number is not None)]

    def _step_of(self, entry: FolderEntry) -> int:
        """Of its checkpoint: its number, unless that stays, or is none of steps (`exp2`)."""
        if entry.number is None:
            return self._step + 1
        again = self._taken is not None and self._taken.number == entry.number
        if self._gang is None and (again or not entry.final or entry.number < self._step):
            return max(entry.number, self._step + 1)
        return entry.number

    async def _take(
        self, entry: FolderEntry, look: Look, *, step: int | None = None, models: bool = False
    ) -> bool:
        if self.bringing.uploads.fatal is not None:
            return False
        if not self.rule.carry:
            await self._restored.saw(entry)
            self._taken, self.problem = entry, None
            return True
        repeats = step is not None and not models  # the note is that of who saved it
        step = self._step_of(entry) if step is None else step
        beside = changed(loose(look, self.rule.newest, models=models), self.memory.before)
        rank = min(self.bringing.folders)
        name = f"folder-{step:012d}"
        target = self.bringing.folders[rank] / name
        note, metrics = self._resumption.note(entry)
        if self._slot == 0:  # the only note that counts
            note = replace(note, links=hard_links({**entry.files, **beside}))
        try:
            take = partial(taking.take, place=place_of(self._slot), within=self._restored.within)
            digest = await asyncio.to_thread(take, self.top, entry, beside, target)
        except (taking.EntryChanged, OSError) as error:
            self.memory.left = (note, entry) if self.start.workers == 1 else None
            self._fails("NotCopied", str(error))
            return False
        report = Report(
            step=step,
            metrics=metrics,
            files=name,
            whole=self.start.workers == 1 or entry.number is None,
            metadata={} if repeats else note.metadata,
            digest=digest,
        )
        self._taken = entry if step >= self._step else self._taken
        self._step, self._failures, self.problem = max(self._step, step), 0, None
        self.memory.left = None
        self.memory.remember(CheckpointId(attempt=self.start.attempt, step=step), entry)
        LOG.info("took %s as step %d", ", ".join(entry.names) or self.rule.path, step)
        self.bringing.taken(report)
        return True

    async def _end(self, known: Look) -> None:
        try:
            if self._looking is not None:
                await asyncio.wait([self._looking])
            if self.bringing.uploads.fatal is None:
                await self._take_last(known)
            if self._gang is not None:
                await self._gang.close(time.monotonic())
        except OSError as error:
            self._fails("Unreadable", str(error))
            if self._gang is not None:
                self._gang.fail(str(error))
        finally:
            self.over = True
            self.news()

    async def _take_last(self, known: Look) -> None:
        look = await self._restored.look()
        well, new = self.processes.ended_well, self._new(look, known)
        if (gang := self._gang) is None or not gang.has(new):
            chosen = await self._last(look, new)
        else:
            left = await gang.left(look, new, time.monotonic())
            chosen = left[-1] if left else None
            for entry in left[:-1]:
                if well or self._resumption.allows(entry):
                    await self._take(entry, look)
        models: Look = {}
        if well and self.rule.newest and self.rule.carry:  # best and final models lie beside
            found = changed(loose(look, self.rule.newest, models=True), known)
            own = not self._restored.within
            models = {n: f for n, f in found.items() if not is_log(n) and (own or "/" not in n)}
        if chosen is not None:
            # A script that has succeeded need not have resumed.
            if not well and not self._resumption.allows(chosen):
                return
            if not models or not await self._take(chosen, look, models=True):
                await self._take(chosen, look)
        elif models and self._slot == 0:
            last = self._restored.brought(self._step)
            if last is None or not last.same(look):
                last = FolderEntry(number=None, names=(), files=models)
            await self._take(last, look, step=self._step + 1, models=True)

    async def _last(self, look: Look, new: list[FolderEntry]) -> FolderEntry | None:
        """The newest whole entry that was not taken; None: there is none."""
        seen, complete = self._seen, self.rule.complete
        for entry in reversed(self._quiet.newest_last(new)):
            if entry.is_over(self._taken):
                return None
            if entry == seen:
                return seen
            why = await asyncio.to_thread(looking.unfinished, self.top, entry, complete)
            # Where they ended by themselves nobody writes any more.
            if not why and (
                self.processes.ended_by_themselves
                or await asyncio.to_thread(looking.proven, self.top, entry, complete)
            ):
                return entry
            why = why or "it was younger than settle, and its format does not show that it is whole"
            if self.problem is None:
                self._fails("Incomplete", f"{', '.join(entry.names) or 'the last save'}: {why}")
        return seen if seen is not None and seen != self._taken and seen.same(look) else None

    def _fails(self, reason: str, why: str) -> None:
        self._failures += 1
        why = why.encode(errors="backslashreplace").decode()  # a name may not be UTF-8
        LOG.info("%s is not taken: %s", self.rule.path, why)
        if self._failures >= TRIES or self._ending is not None:  # there is no next try
            message = (
                f"the save in {self.rule.path} is not stored: {why}. A new worker would begin "
                "with an older one"
            )
            problem = Problem(type="FolderNotTaken", reason=reason, message=message)
            if problem != self.problem:
                self.problem = problem
                self.news()
