"""Which part one worker takes in the checkpoints of a gang whose workers have folders of their own.

Layer: agent, pure. A number is a checkpoint of the gang: each worker brings its entry with that
number, or says that it has none. It must not say so too early: a checkpoint without that part looks
whole. So a worker begins a checkpoint only with a whole entry. In one that others have begun it
takes part with what it has, if it never had a whole entry itself; or with nothing, if it has no
entry with that number and its folder was quiet for `settle`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainrun._common.tree import TreeEntry
from trainrun._common.writer_processes import without_metadata
from trainrun.agent.folder.entries import FileFacts, FolderEntry, Look, entries_of, is_log, unfit
from trainrun.checkpoint.records import Manifest, ManifestFile

FOREIGN = re.compile(r"^\.trainrun-worker-(\d+)(?:/|$)")

Role = Literal["Unknown", "Whole", "Part", "Nothing"]
"""What the script of this worker saves: entries that are whole, entries that are not, or none."""


def place_of(slot: int) -> str:
    """Where in a checkpoint the part of this slot is, with a slash at the end; slot 0's is at the
    top. Two workers may save different content under one name."""
    return f".trainrun-worker-{slot}/" if slot else ""


def slot_of(name: str) -> tuple[int, str]:
    """The slot that brought a file of a checkpoint, and its name in the script's folder; empty: the
    place of that slot itself."""
    found = FOREIGN.match(name)
    return (int(found[1]), name[found.end() :]) if found else (0, name)


def is_whole(entry: FolderEntry, complete: Iterable[str]) -> bool:
    """Whether an entry needs no file of another worker, by its names."""
    return not unfit(entry, complete) and not without_metadata(entry.files, entry.files)


def role_of(names: Iterable[str], newest: str, complete: Iterable[str]) -> Role:
    """What a worker saves, by the names of its part of an earlier checkpoint."""
    look = {name: FileFacts(inode=0, size=1, modified=0) for name in names}
    found = [entry for entry in entries_of(look, newest) if entry.number is not None]
    if not found:
        return "Nothing"
    return "Whole" if is_whole(found[-1], complete) else "Part"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSource:
    """Files of a checkpoint for one worker's folder."""

    slot: int
    """That has brought them."""
    rank: int | None
    """Likewise; None: nobody else has brought any."""
    without: frozenset[str]
    """Names that come from elsewhere, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderParts:
    """From which parts of a checkpoint a worker's folder is put together."""

    sources: tuple[PartSource, ...]
    own: frozenset[str] | None
    """What this worker has brought; None: not known, the number of workers was another."""
    lent: Mapping[str, ManifestFile | TreeEntry]
    """What comes from other workers, by name."""

    def lent_to(self, look: Look) -> bool:
        """Whether a folder has what comes from other workers."""
        return all(_is_there(item, look.get(name)) for name, item in self.lent.items())


def parts_of(
    manifest: Manifest, slot: int, workers: int, saves: tuple[str, ...] = ()
) -> FolderParts:
    """The parts for the worker of `slot`, one of `workers`: its own, and what the lowest slot that
    has one of `saves` has beside; where the number of workers was another, what all have. Logs stay
    with their worker."""
    parts: dict[int, dict[str, ManifestFile | TreeEntry]] = {}
    items: tuple[ManifestFile | TreeEntry, ...] = (*manifest.files, *manifest.others)
    for item in items:
        of, name = slot_of(item.name)
        if name:
            parts.setdefault(of, {})[name] = item
    alike = manifest.workers == workers
    within = tuple(f"{save}/" for save in saves) or ("",)
    every = sorted(parts, key=lambda of: (not _has_any(parts[of], within), of))
    order = sorted({slot} & {*every}) + [of for of in every[: 1 if alike else None] if of != slot]
    own = parts.get(slot, {})
    sources: list[PartSource] = []
    lent: dict[str, ManifestFile | TreeEntry] = {}
    for of in order:
        without = frozenset(n for n in parts[of] if of != slot and (n in own | lent or is_log(n)))
        if of != slot:
            lent |= {name: item for name, item in parts[of].items() if name not in without}
        rank = min(rank for item in parts[of].values() for rank in item.ranks)
        one = len(parts) == 1
        sources.append(PartSource(slot=of, rank=None if one else rank, without=without))
    return FolderParts(sources=tuple(sources), own=frozenset(own) if alike else None, lent=lent)


def _has_any(names: Iterable[str], within: tuple[str, ...]) -> bool:
    return any(f"{name}/".startswith(within) for name in names)


def _is_there(item: ManifestFile | TreeEntry, facts: FileFacts | None) -> bool:
    if isinstance(item, TreeEntry):
        return item.folder or (facts is not None and facts.target == item.target)
    return facts is not None and (facts.size, facts.modified // 1000) == (item.size, item.modified)


@dataclass(slots=True, kw_only=True)
class GangPart:
    """What one worker knows of an attempt. Times are seconds on one clock."""

    settle: float
    complete: tuple[str, ...] = ()
    role: Role = "Unknown"
    """At first as the restored checkpoint shows it."""
    _heard: dict[int, float] = field(default_factory=dict)
    """When it was first heard that another worker has files for a step."""
    _intact: dict[int, FolderEntry] = field(default_factory=dict)
    """Entries of the last look that were quiet and without a fault while the processes lived."""
    _saved: set[int] = field(default_factory=set)
    """Steps whose entry once was that, later than the newest commit."""
    _present: dict[int, FolderEntry] = field(default_factory=dict)
    """New entries of the last look."""
    _newest: int = -1
    """The newest step of which any look showed an entry."""
    _files: Look = field(default_factory=dict)
    _moved: float = -math.inf
    """When a file, other than a log, was last seen to change."""

    def hear(self, steps: Iterable[int], now: float) -> list[int]:
        """Workers have files for these steps; return those that are new."""
        new = [step for step in steps if step not in self._heard]
        self._heard.update(dict.fromkeys(new, now))
        return new

    def forget(self, committed: int) -> None:
        """Steps up to this one are of no use any more."""
        self._heard = {step: at for step, at in self._heard.items() if step > committed}
        self._saved = {step for step in self._saved if step > committed}

    @property
    def heard(self) -> tuple[int, ...]:
        """Steps for which workers have files, ascending."""
        return tuple(sorted(self._heard))

    def look(self, look: Look, new: Iterable[FolderEntry], now: float) -> None:
        """Note a look at the folder, with the entries that are new in this attempt."""
        files = {name: facts for name, facts in look.items() if not is_log(name)}
        if files != self._files:
            self._files, self._moved = files, now
        self._present = {entry.number: entry for entry in new if entry.number is not None}
        self._intact = {step: e for step, e in self._intact.items() if step in self._present}
        self._newest = max([self._newest, *self._present])

    def has_judged(self, entry: FolderEntry) -> bool:
        """Whether the entry, as it is now, is known to be intact."""
        return entry.number is not None and self._intact.get(entry.number) == entry

    def judge(self, entry: FolderEntry) -> None:
        """The entry is quiet, and nothing in it is cut off."""
        if entry.number is not None:
            self._intact[entry.number] = entry
            self._saved.add(entry.number)
            if is_whole(entry, self.complete):
                self.role = "Whole"

    def first(self) -> FolderEntry | None:
        """The newest entry with which a checkpoint may begin."""
        whole = (e for e in self._present.values() if self.has_judged(e))
        found = [entry for entry in whole if is_whole(entry, self.complete)]
        return max(found, key=lambda entry: entry.number or 0, default=None)

    def part(self, step: int, now: float) -> FolderEntry | Literal["Nothing", "Later"]:
        """What to bring for a step that another worker has begun, while the processes live."""
        entry = self._present.get(step)
        known = self.role == ("Part" if entry is not None else "Nothing")
        waited = known or now - self._heard.get(step, now) >= self.settle
        if entry is not None:
            if not self.has_judged(entry):
                return "Later"
            return entry if waited or is_whole(entry, self.complete) else "Later"
        quiet = now - self._moved >= self.settle
        if self.role in ("Unknown", "Nothing") and waited and quiet:
            return "Nothing"
        return "Later"

    def took(self, entry: FolderEntry | None) -> None:
        """This part of a step was brought; None: nothing."""
        if self.role in ("Unknown", "Nothing"):
            self.role = "Nothing" if entry is None else "Part"

    def left(self, entry: FolderEntry, *, intact: bool) -> bool:
        """Whether to bring an entry once the processes have ended; `intact`: nothing in it is cut
        off now. It need not be the newest: another worker may lack that one."""
        heard = entry.number in self._heard and self.role != "Whole"
        wanted = is_whole(entry, self.complete) or self.role == "Part" or heard
        return wanted and (intact or self.has_judged(entry))

    def lacks(self, step: int, now: float, *, wrote_all: bool) -> bool:
        """Whether this worker has nothing for the step, its processes having ended. `wrote_all`:
        they ended by themselves, so that nothing was cut off."""
        quiet = wrote_all or now - self._moved >= self.settle
        told = step in self._heard or self.role == "Nothing" or wrote_all
        return step not in self._present and self.role in ("Unknown", "Nothing") and quiet and told

    def lacks_all(self, now: float, *, wrote_all: bool) -> bool:
        """The same for steps of which nothing was heard."""
        return not self._present and self.lacks(-1, now, wrote_all=wrote_all)

    def owes(self, step: int) -> bool:
        """Whether this worker has saved, or may have, what it did not bring for a step, its
        processes having ended well. What is newer than all its entries it never saved."""
        saves = self.role in ("Whole", "Part")
        return step in self._present or (saves and step <= self._newest)

    def last(
        self, step: int, brought: Callable[[int], FolderEntry | None]
    ) -> FolderEntry | Literal["Nothing", "Owed"]:
        """What to bring for a step of others, its processes having ended well; Owed: something
        that it could not bring. `brought`: what it has of a step.

        The step may be slot 0's newest save once more, with final models beside it, which are
        written after the last save: so each worker repeats what it has of the step before. A
        checkpoint without that could not be resumed, whether another worker dies later or the
        finished run is continued. If it is another save, an older one beside it harms nobody.
        """
        if self.owes(step):
            return "Owed"
        before = brought(step - 1)
        return before or ("Owed" if self.owes(step - 1) else "Nothing")

    def missed(self) -> int | None:
        """A step that this worker still lacks although others have begun a later one."""
        waits = [step for step in self.heard[:-1] if step not in self._saved]
        return waits[-1] if waits and self.role == "Whole" else None
