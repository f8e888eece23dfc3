"""Stores what a script saves into its own folder, and puts it back before an attempt; of one
attempt.

Layer: agent. While the processes live it looks at the folder every few seconds and stages the
newest complete entry, on the same way into the store as `report(checkpoint=)`. When they have ended
it stages what it had seen complete before. Invariants: nothing is taken before the script is known
to have resumed from what it was given; nothing that was there before the first attempt is touched.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from trainrun.agent import background
from trainrun.agent.checkpoints.bringing import Bringing
from trainrun.agent.checkpoints.fetching import Fetching
from trainrun.agent.folder import looking, taking
from trainrun.agent.folder.arguments import NoSuchFile, newest_path, resume_args, resumed
from trainrun.agent.folder.entries import FolderEntry, Look, Quiet, entries_of, is_log, loose
from trainrun.agent.folder.notes import (
    FolderMemory,
    FolderNote,
    Printed,
    ignores,
    is_resumed,
    outdated,
)
from trainrun.agent.processes.group import Launch, ProcessGroup
from trainrun.agent.training.step_clock import StepClock
from trainrun.contract.agent_state import Problem
from trainrun.contract.answer import FolderRule, Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import OutputProgress
from trainrun.contract.messages import Report
from trainrun.contract.questions import Described, Failed, Fetched

LOG = logging.getLogger("trainrun.agent")

T = TypeVar("T")

NO_FOLDER = FolderRule(path="")
"""The script's folders are its own business."""
FASTEST_LOOK, SLOWEST_LOOK = 0.5, 30.0
"""Seconds between two looks; half of `settle` between them."""
TRIES = 3
"""Takes that fail in a row before the condition says so."""


class RestoreFailed(Exception):
    """The folder cannot be put back; the message says why."""


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
    _known: Look | None = None
    """The folder when the processes started; None: they have not."""
    _restored: FolderNote | None = None
    _quiet: Quiet = field(init=False)
    _printed: Printed = field(default_factory=Printed)
    _seen: FolderEntry | None = None
    """The newest entry that was complete while the processes lived."""
    _taken: FolderEntry | None = None
    _step: int = 0
    """Of the last checkpoint."""
    _failures: int = 0
    _next_look: float = 0.0
    _looking: asyncio.Task[None] | None = None
    _ending: asyncio.Task[None] | None = None
    _restore: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        """Nothing was looked at yet."""
        self._quiet = Quiet(settle=self.rule.settle)
        self._step = self.start.resume.step if self.start.resume is not None else 0

    @property
    def top(self) -> Path:
        """The folder."""
        return self.base / self.rule.path

    @property
    def busy(self) -> bool:
        """The attempt has not ended here, although no process lives."""
        return self.restoring or (self._ending is not None and not self.over)

    def begin(self, launches: list[Launch], clock: StepClock) -> None:
        """Put the folder back; then start the processes, or record why not. No step is owed."""

        async def work() -> None:
            try:
                ready = await self._prepare(launches)
            except (RestoreFailed, NoSuchFile, OSError) as error:
                why = f"the folder {self.rule.path} cannot be restored: {error}"
                self.processes.refuse(launches, why)
            else:
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

    async def _prepare(self, launches: list[Launch]) -> list[Launch]:
        memory, resume, attempt = self.memory, self.start.resume, self.start.attempt
        if self.top.resolve() in (Path("/"), Path.home()):
            raise RestoreFailed(f"{self.top.resolve()} is not a folder for saves alone")
        look = await self._alone(lambda: looking.look_at(self.top))
        if memory.before is None and attempt == 1:
            memory.before = look
        if resume is not None:
            self._restored = await self._put_back(resume, look)
        elif memory.before is not None and attempt > 1 and not self.rule.from_second_attempt:
            old = outdated(look, self.rule.newest, -1, before=memory.before)
            await self._alone(lambda: taking.move_aside(self.top, old, self._aside))
        known = await asyncio.to_thread(looking.look_at, self.top)
        note, path = self._restored, ""
        entry: FolderEntry | None = None
        if resume is not None and note is not None:
            entry, path = self._entry(note, known), newest_path(self.rule, note.names)
            memory.remember(resume, entry)
        words = resume_args(self.rule, entry, attempt=attempt)
        self._known = known
        return [resumed(launch, path, words) for launch in launches]

    async def _put_back(self, resume: CheckpointId, look: Look) -> FolderNote | None:
        about = await self.fetching.info()
        if isinstance(about, Failed):
            raise RestoreFailed(about.error)
        note = FolderNote.read(about.metadata) if isinstance(about, Described) else None
        if note is None:
            self.refuse(
                "FolderRefused",
                f"checkpoint {resume.name} was reported by a script, but checkpoint.folder is "
                "set. Remove the folder from the spec, or set storage.onExisting: StartFresh",
            )
            raise RestoreFailed("its checkpoint is of another kind")
        newest, before = self.rule.newest, self.memory.before or {}
        entry = self.memory.stored.get(resume)
        if entry is not None and entry.same(look):
            at, files = entry.modified, entry.files
            old = outdated(look, newest, note.number, stored=files, at=at, before=before)
            if not old or not any(facts.target for facts in look.values()):
                await self._alone(lambda: taking.move_aside(self.top, old, self._aside))
                LOG.info("%s is there already: nothing was read", resume.name)
                return note  # otherwise a link may lead to what is moved
        fetched = await self.fetching.checkpoint(None)
        if not isinstance(fetched, Fetched):
            raise RestoreFailed(fetched.error if isinstance(fetched, Failed) else "no answer")

        def work() -> None:
            source = Path(fetched.path)
            stored = looking.look_at(source)
            files = {name: facts for name, facts in stored.items() if not is_log(name)}
            at = max((facts.modified for facts in files.values()), default=0)
            old = outdated(look, newest, note.number, stored=stored, at=at, before=before)
            taking.move_aside(self.top, old, self._aside)
            taking.put_back(source, self.top)

        await self._alone(work)
        LOG.info("%s is back in %s", resume.name, self.rule.path)
        return note

    async def _alone(self, work: Callable[[], T]) -> T:
        """Run it in a thread, after any that an ended attempt has left running."""

        async def alone() -> T:
            async with self.memory.lock:
                return await asyncio.to_thread(work)

        return await asyncio.shield(asyncio.ensure_future(alone()))

    @property
    def _aside(self) -> Path:
        return taking.aside_of(self.top, self.base)

    def _entry(self, note: FolderNote, look: Look) -> FolderEntry:
        """The restored entry. Raises RestoreFailed."""
        for entry in entries_of(look, self.rule.newest if note.names else ""):
            if (entry.number, entry.names) == (note.number, note.names):
                return entry
        raise RestoreFailed(f"it does not show {', '.join(note.names) or 'any file'}")

    async def _look(self, known: Look) -> None:
        try:
            look = await asyncio.to_thread(looking.look_at, self.top)
            new = self._new(look, known)
            quiet = self._quiet.look(new, time.monotonic())
            why, complete = "", self.rule.complete
            for entry in reversed(quiet):
                if entry == self._taken or self._is_over(entry):
                    break
                found = await asyncio.to_thread(looking.unfinished, self.top, entry, complete)
                if not found and await asyncio.to_thread(looking.live, self.processes.living_pids):
                    self._seen = entry
                    await self._take_seen(entry, look)
                    break
                why = why or found
            if why:
                self._fails("Incomplete", why)
        except OSError as error:
            self._fails("Unreadable", str(error))

    def _new(self, look: Look, known: Look) -> list[FolderEntry]:
        """Entries that have changed since the processes started."""
        return [e for e in entries_of(look, self.rule.newest) if not e.same(known)]

    def _is_over(self, entry: FolderEntry) -> bool:
        taken = self._taken
        if taken is None or taken.number is None or entry.number is None:
            return False
        return entry.number <= taken.number

    def _resumed(self, entry: FolderEntry) -> bool:
        """Whether entries may be taken: the script did not start over."""
        note = self._restored
        if note is None:
            return self.bringing.uploads.fatal is None
        if why := ignores(note, entry, self._known or {}, self._printed.last):
            given = ", ".join(note.names) or self.rule.path
            self.refuse(
                "ResumeIgnored",
                f"the script started over, although {given} was restored: {why}. Correct "
                "checkpoint.folder.resumeArgs and apply the run again; the store has kept the "
                "restored save",
            )
        elif not is_resumed(note, entry, self._printed.last):
            self._fails("ResumeUnknown", "the output has shown no step since the restart")
            return False
        return self.bringing.uploads.fatal is None

    async def _take_seen(self, entry: FolderEntry, look: Look) -> None:
        if self._resumed(entry) and self.bringing.rooms.has_room(self._step_of(entry)):
            await self._take(entry, look)

    def _step_of(self, entry: FolderEntry) -> int:
        """Of its checkpoint."""
        return entry.number if entry.number is not None else self._step + 1

    async def _take(
        self, entry: FolderEntry, look: Look, *, step: int | None = None, models: bool = False
    ) -> None:
        step = self._step_of(entry) if step is None else step
        beside = loose(look, self.rule.newest, models=models)
        rank = min(self.bringing.folders)
        name = f"folder-{step:012d}"
        target = self.bringing.folders[rank] / name
        try:
            digest = await asyncio.to_thread(taking.take, self.top, entry, beside, target)
        except (taking.EntryChanged, OSError) as error:
            self._fails("NotCopied", str(error))
            return
        output, last = self._printed.at(entry.modified), self._printed.last
        began = last.first if last is not None else None
        note = FolderNote(
            names=entry.names,
            number=entry.number,
            printed=output.step if output is not None else None,
            began=began if self._restored is None else self._restored.began,
        )
        report = Report(
            step=step,
            metrics=dict(output.metrics) if output is not None else {},
            files=name,
            whole=self.start.workers == 1,
            metadata=note.metadata,
            digest=digest,
        )
        self._taken, self._step, self._failures, self.problem = entry, step, 0, None
        self.memory.remember(CheckpointId(attempt=self.start.attempt, step=step), entry)
        LOG.info("took %s as step %d", ", ".join(entry.names) or self.rule.path, step)
        self.bringing.taken(report)

    async def _end(self, known: Look) -> None:
        try:
            if self._looking is not None:
                await asyncio.wait([self._looking])
            if self.bringing.uploads.fatal is None:
                await self._take_last(known)
        except OSError as error:
            self._fails("Unreadable", str(error), at_once=True)
        finally:
            self.over = True
            self.news()

    async def _take_last(self, known: Look) -> None:
        look = await asyncio.to_thread(looking.look_at, self.top)
        chosen = self._seen if self._seen is not None and self._seen.same(look) else None
        complete = self.rule.complete
        if self._ended_by_themselves:  # nobody writes any more
            for entry in reversed(self._new(look, known)):
                why = ""
                if entry != self._taken and not self._is_over(entry):
                    why = await asyncio.to_thread(looking.unfinished, self.top, entry, complete)
                if not why:
                    chosen = entry
                    break
                LOG.warning("%s: %s", ", ".join(entry.names) or self.rule.path, why)
        models: Look = {}
        if self.processes.ended_well and self.rule.newest:  # best and final models lie beside
            found = loose(look, self.rule.newest, models=True)
            models = {n: f for n, f in found.items() if known.get(n) != f and not is_log(n)}
        if chosen is not None and chosen != self._taken and self._resumed(chosen):
            await self._take(chosen, look, models=bool(models))
        elif models and self.bringing.uploads.fatal is None:
            last = chosen or FolderEntry(number=None, names=(), files=models)
            await self._take(last, look, step=self._step + 1, models=True)

    @property
    def _ended_by_themselves(self) -> bool:
        """Successfully, or on SIGTERM."""
        ends = [process.exit for process in self.processes.all.values()]
        return all(e is not None and (e.well or (e.ordered and e.code is not None)) for e in ends)

    def _fails(self, reason: str, why: str, *, at_once: bool = False) -> None:
        self._failures += 1
        LOG.info("%s is not taken: %s", self.rule.path, why)
        if self._failures >= TRIES or at_once:
            message = (
                f"the save in {self.rule.path} is not stored: {why}. A new worker would begin "
                "with an older one"
            )
            problem = Problem(type="FolderNotTaken", reason=reason, message=message)
            if problem != self.problem:
                self.problem = problem
                self.news()
