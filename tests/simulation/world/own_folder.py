"""What the agent of a simulated worker takes of its script's folder, and puts back.

Layer: simulation. Which entry is the newest, quiet, fit, outdated or ignored is decided by the
agent's own rules; takes are late, void (a full disk) or overtaken by the script.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.simulation.world.own_saves import (
    LATE,
    SETTLE,
    SOON,
    SavingWorld,
    SimOwnFiles,
    TrueSave,
)
from trainrun.agent.folder.entries import FileFacts, FolderEntry, Look, Quiet, unfit
from trainrun.agent.folder.notes import (
    FolderMemory,
    FolderNote,
    Printed,
    ignores,
    is_resumed,
    outdated,
)
from trainrun.agent.folder.resumption import LOWER_SAVES
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import OutputProgress

if TYPE_CHECKING:
    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.processes import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFolder:
    """What a checkpoint holds."""

    note: FolderNote
    files: dict[str, FileFacts]
    content: TrueSave


class FolderWorld(SavingWorld, Protocol):
    """What a folder needs of its world."""

    stored_folders: dict[CheckpointId, StoredFolder]

    def wrong(self, what: str) -> None:
        """A promise is broken."""

    def staged(self, agent: SimAgent, step: int) -> None:
        """The agent has taken a save as this step."""

    def refused(self, agent: SimAgent, why: str) -> None:
        """The agent ends the run: the script has started over."""


@dataclass(slots=True, kw_only=True)
class SimFolder(SimOwnFiles):
    """With what the agent of the worker makes of it."""

    world: FolderWorld
    memory: FolderMemory = field(default_factory=FolderMemory)
    note: FolderNote | None = None
    known: Look = field(default_factory=dict)
    died_at: float | None = None
    excused: bool = False
    """What was whole may be lost: the store was away, or set something aside."""
    attempt: int = 0
    over: bool = True
    """Nothing is left to be taken of the attempt that ended."""
    _given: int = 0
    """Step of the save that the script was given."""
    _taking: bool = False
    _ending: bool = False
    _seen: FolderEntry | None = None
    _taken: FolderEntry | None = None
    _step: int = 0
    _behind: set[int] = field(default_factory=set)
    _quiet: Quiet = field(default_factory=lambda: Quiet(settle=SETTLE))
    _printed: Printed = field(default_factory=Printed)

    @property
    def busy(self) -> bool:
        """What is left of the attempt is not staged yet."""
        return not self.over

    # ------------------------------------------------------------------ before an attempt

    def restore(self, attempt: int, resume: CheckpointId | None) -> int:
        """Put the folder back; return the step from which the script goes on."""
        self.attempt, self.over, self._ending, self.note = attempt, False, False, None
        self.open.clear()
        self._seen = self._taken = None
        self._behind.clear()
        self._quiet, self._printed = Quiet(settle=SETTLE), Printed()
        self._step = resume.step if resume is not None else 0
        memory, look = self.memory, dict(self.files)
        if memory.before is None and (attempt == 1 or resume is None):
            memory.before = look
        left, memory.left = memory.left, None
        if left is not None and left[1].same(look):
            self.note, self._seen = left
            self._clear(look, left[1].number, stored=left[1].files, at=left[1].modified)
        elif resume is not None:
            self.note = self._put_back(resume, look)
        elif memory.before is not None and attempt > 1:
            self._clear(look, -1)
        self.known = dict(self.files)
        found = self.content(self.entries()[-1]) if self.entries() else None
        self._judge(resume, found)
        self._given = found.step if found is not None else 0
        self.died_at, self.whole_at, self.excused = None, {}, False
        late = self.world.script.ignores_from
        return 0 if found is None or 0 < late <= attempt else found.step

    def _put_back(self, resume: CheckpointId, look: dict[str, FileFacts]) -> FolderNote:
        stored, entry = self.world.stored_folders[resume], self.memory.stored.get(resume)
        if self.memory.before is None:
            self.memory.before = {}
        if entry is not None and entry.same(look):
            self._clear(look, stored.note.number, stored=entry.files, at=entry.modified)
            return stored.note
        at = max(facts.modified for facts in stored.files.values())
        same = {n for n, f in stored.files.items() if n in look and look[n] == f}
        self._clear(look, stored.note.number, stored=same, at=at)
        for name, facts in stored.files.items():
            self.inodes += 1
            self.files[name] = FileFacts(
                inode=self.inodes, size=facts.size, modified=facts.modified
            )
            self.truth[name] = stored.content
        files = {name: self.files[name] for name in stored.files}
        entry = FolderEntry(number=stored.note.number, names=stored.note.names, files=files)
        self.memory.remember(resume, entry)
        return stored.note

    def _clear(
        self, look: Look, number: int | None, *, stored: Collection[str] = (), at: int = -1
    ) -> None:
        newest, before = self.world.script.newest, self.memory.before or {}
        self.delete(outdated(look, newest, number, stored=stored, at=at, before=before))

    def _judge(self, resume: CheckpointId | None, found: TrueSave | None) -> None:
        """Never a bad resume; nothing is lost that was whole for long enough."""
        attempt = f"attempt {self.attempt}"
        if found is not None and not found.whole:
            self.world.wrong(f"{attempt} finds a save of step {found.step} that was never finished")
        if resume is not None:
            step = self.world.stored_folders[resume].content.step
            if found is None or found.step < step:
                self.world.wrong(f"{attempt} resumes from {resume}, and finds {found}, not {step}")
        if self.died_at is not None and not self.excused:
            seen = [s for s, at in self.whole_at.items() if at + SOON <= self.died_at]
            if max(seen, default=0) > (found.step if found is not None else 0):
                self.world.wrong(f"{attempt} finds {found}, although step {max(seen)} was whole")

    # ------------------------------------------------------------------ what the agent takes

    def tick(self, training: Training) -> None:
        """Called at each look while the attempt runs."""
        output = self._output(training)
        self._printed.note(output, self.wall_clock)
        well = all(end.well for end, _ in training.exits.values())
        if not well or not training.alive:
            self.died_at = self.died_at or min(at for _, at in training.exits.values())
        if not training.alive:
            self._end(training)
        elif well and not self._taking:
            self._look()

    def _output(self, training: Training) -> OutputProgress | None:
        """It prints each step."""
        step = training.steps.get(0, 0)
        if step <= training.begin:
            return None
        return OutputProgress(rank=0, form="F", line="", first=training.begin + 1, step=step)

    def _new(self) -> list[FolderEntry]:
        return [entry for entry in self.entries() if not entry.same(self.known)]

    def _unfinished(self, entry: FolderEntry) -> bool:
        script = self.world.script
        torn = script.shows_end and not all(self.truth[name].whole for name in entry.files)
        return bool(unfit(entry, script.patterns)) or torn or bool(self.open & {*entry.files})

    def _look(self) -> None:
        for entry in reversed(self._quiet.look(self._new(), self.world.clock.now)):
            if entry.is_over(self._taken):
                return
            if not self._unfinished(entry):
                self._seen = entry
                self._take(entry)
                return

    def _end(self, training: Training) -> None:
        if self._taking or self._ending:
            return
        self._ending = True
        self.open.clear()
        ends = [end for end, _ in training.exits.values()]
        themselves = all(e.well or (e.ordered and e.code is not None) for e in ends)
        well = all(end.well for end in ends)
        chosen = self._last(themselves=themselves)
        if chosen is None or not self._take(chosen, well=well):
            self._finish_end()

    def _finish_end(self) -> None:
        self.over = True
        self.agent.changed()

    def _last(self, *, themselves: bool) -> FolderEntry | None:
        for entry in reversed(self._quiet.newest_last(self._new())):
            if entry.is_over(self._taken):
                return None
            if entry == self._seen:
                return entry
            script = self.world.script
            proven = script.shows_end and (script.form != "Folders" or bool(script.patterns))
            if not self._unfinished(entry) and (themselves or proven):
                return entry
        seen = self._seen
        return seen if seen is not None and seen != self._taken and seen.same(self.files) else None

    def _resumed(self, entry: FolderEntry) -> bool:
        if self.note is None or self.agent.fatal is not None:
            return self.agent.fatal is None
        output = self._printed.at(entry.modified) or self._printed.last
        if why := ignores(self.note, entry, self.known, output):
            if entry.number is not None:
                self._behind.add(entry.number)
            if len(self._behind) >= LOWER_SAVES:
                self.world.refused(self.agent, why)
            return False
        return is_resumed(self.note, entry, self._printed.last)

    def _take(self, entry: FolderEntry, *, well: bool = False) -> bool:
        """Begin to; False: it must not be taken."""
        if not well and not self._resumed(entry):
            return False
        rng, content = self.world.rng, self.content(entry)
        note = FolderNote(
            names=entry.names,
            number=entry.number,
            printed=self._printed_at(entry),
            began=1 if self.note is None else self.note.began,
            form="F",
        )
        void = rng.random() < self.world.script.void
        seconds = rng.choice([0.1, rng.uniform(0.0, LATE)])
        self._taking = True
        self.world.clock.after(seconds, lambda: self._taken_now(entry, note, content, void=void))
        return True

    def _printed_at(self, entry: FolderEntry) -> int | None:
        output = self._printed.at(entry.modified)
        return output.step if output is not None else None

    def _taken_now(
        self, entry: FolderEntry, note: FolderNote, content: TrueSave, *, void: bool
    ) -> None:
        self._taking = False
        if not self.agent.alive:
            return
        if void or not entry.same(self.files):
            self.memory.left = note, entry
            if entry.number is None:  # it may be overwritten, and nobody is to blame
                self.whole_at.clear()
        else:
            self._stage(entry, note, content)
        if self._ending:
            self._finish_end()

    def _stage(self, entry: FolderEntry, note: FolderNote, content: TrueSave) -> None:
        given, note_of = self._given, self.note
        if note_of is not None and note_of.number is None:  # what was printed is all that is known
            given = min(given, note_of.printed or 0)
            given -= math.ceil(self.world.script.slow)  # it trains while it saves
        if content.step < given:
            self.world.wrong(f"step {content.step} is taken although {given} was restored")
        step = entry.number if entry.number is not None else self._step + 1
        point = CheckpointId(attempt=self.attempt, step=step)
        self._taken, self._step, self.memory.left = entry, step, None
        self.memory.remember(point, entry)
        self.world.stored_folders[point] = StoredFolder(
            note=note, files=dict(entry.files), content=content
        )
        self.world.staged(self.agent, step)
