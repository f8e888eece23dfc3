"""What a simulated script saves by itself: facts of files in memory, with the truth beside them.

Layer: simulation. The truth: which save is in a file, and whether it is whole. A save takes a
while, and its process may die or hang in the middle of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from trainrun.agent.folder.entries import FileFacts, FolderEntry, entries_of

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from tests.simulation.world.agent import SimAgent
    from tests.simulation.world.clock import Clock
    from tests.simulation.world.processes import Training

SETTLE = 1.0
"""Seconds."""
LATE = 2.0
"""Seconds that a take goes on at most."""
SOON = SETTLE + LATE + 2.0
"""Seconds after which a whole save must have been seen as one: the take of the save before it may
go on, and then it takes two looks."""
KEPT = 2
"""Numbered saves that the script keeps."""
ENTRY_SIZE = 1000
DAY_ZERO = 1_767_225_600
"""Seconds since the epoch at which a life begins."""

SaveForm = Literal["Folders", "Place", "Rename"]
NEWEST: dict[SaveForm, str] = {"Folders": "step-*", "Place": "ckpt.bin", "Rename": "last.bin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimScript:
    """How the script saves, and what goes wrong with it."""

    form: SaveForm = "Folders"
    complete: bool = True
    """The last file of a save with several is named."""
    shows_end: bool = False
    """The format of its files shows where they end."""
    slow: float = 1.5
    """Seconds that a save takes at most."""
    void: float = 0.1
    """Part of the takes for which the disk has no room."""
    jumps: float = 0.0
    """Part of the saves before which the wall clock jumps."""
    ignores_from: int = 0
    """The attempt from which on it no longer finds what it is given; 0: none."""

    @property
    def newest(self) -> str:
        """Pattern of its saves."""
        return NEWEST[self.form]

    @property
    def patterns(self) -> tuple[str, ...]:
        """Of the files that a save must have."""
        return ("*/state.json",) if self.form == "Folders" and self.complete else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueSave:
    """What really is in a file."""

    step: int
    whole: bool


class SavingWorld(Protocol):
    """What a script that saves needs of its world."""

    rng: random.Random
    clock: Clock
    script: SimScript


@dataclass(slots=True, kw_only=True)
class SimOwnFiles:
    """The folder of one worker, as its script writes it: it is lost with the worker."""

    world: SavingWorld
    agent: SimAgent
    files: dict[str, FileFacts] = field(default_factory=dict)
    truth: dict[str, TrueSave] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    """Files that a process has open for writing."""
    whole_at: dict[int, float] = field(default_factory=dict)
    """When the saves of the attempt were whole, by step; not those that no take could have had."""
    inodes: int = 0
    skew: float = 0.0
    """Seconds by which the wall clock is ahead."""

    @property
    def wall_clock(self) -> int:
        """Nanoseconds since the epoch, as files have it."""
        return int((DAY_ZERO + self.world.clock.now + self.skew) * 1e9)

    def entries(self) -> list[FolderEntry]:
        """The newest last."""
        return entries_of(self.files, self.world.script.newest)

    def content(self, entry: FolderEntry) -> TrueSave:
        """What a script reads of it."""
        saves = [self.truth[name] for name in entry.files]
        return TrueSave(
            step=max(save.step for save in saves),
            whole=len({save.step for save in saves}) == 1 and all(save.whole for save in saves),
        )

    def save(self, training: Training, step: int, *, at_once: bool = False) -> None:
        """The script begins to save this step; it may die before it has, unless it saves `at_once`,
        as before its end."""
        script, rng = self.world.script, self.world.rng
        if rng.random() < script.jumps:
            self.skew = rng.uniform(-100.0, 100.0)
        names = {"Place": "ckpt.bin", "Rename": "last.bin", "Folders": f"step-{step}/model.bin"}
        first = names[script.form]
        if at_once:
            self._finish(step, first)
            return
        if script.form == "Place":
            self._overwrites()
        if script.form != "Rename":
            self._write(first, step, whole=False)
            self.open.add(first)
        takes = rng.uniform(0.0, script.slow)
        self.world.clock.after(takes, lambda: self._end_save(training, step, first))

    def _end_save(self, training: Training, step: int, first: str) -> None:
        """Unless it has died or hangs: then the file stays as it is, and open while it lives."""
        if self.agent.training is not training or not self.agent.alive or 0 in training.exits:
            self.open.discard(first)
        elif 0 in training.hung:
            self.world.clock.after(1.0, lambda: self._end_save(training, step, first))
        else:
            self._finish(step, first)

    def _finish(self, step: int, first: str) -> None:
        """The save is whole."""
        if self.world.script.form != "Folders":
            self._overwrites()
        self._write(first, step, whole=True)
        self.open.discard(first)
        if self.world.script.form == "Folders":
            self._write(f"step-{step}/state.json", step, whole=True)
            for old in [e for e in self.entries() if e.number is not None][:-KEPT]:
                self.delete(old.files)
        self.whole_at[step] = self.world.clock.now

    def _overwrites(self) -> None:
        """What was whole for too short a time could not be taken."""
        now = self.world.clock.now
        self.whole_at = {s: at for s, at in self.whole_at.items() if at + SOON <= now}

    def _write(self, name: str, step: int, *, whole: bool) -> None:
        place = name in self.files and self.world.script.form != "Rename"
        self.inodes += not place
        self.files[name] = FileFacts(
            inode=self.files[name].inode if place else self.inodes,
            size=ENTRY_SIZE if whole else ENTRY_SIZE // 2,
            modified=self.wall_clock,
        )
        self.truth[name] = TrueSave(step=step, whole=whole)

    def delete(self, names: Iterable[str]) -> None:
        """These files go."""
        for name in tuple(names):
            self.files.pop(name, None)
            self.truth.pop(name, None)
