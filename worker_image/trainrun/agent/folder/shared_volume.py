"""What the workers of a run that share one folder agree on, in a file beside the saves; and how
they notice that they share one.

Layer: agent; called in threads. With `carry: false` nothing is stored. Slot 0's agent alone looks
for saves, moves aside what the script must not find, and writes down what it chose, before it
starts its processes; the others wait for that. Invariant: the file is replaced as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trainrun._common.tree import OURS
from trainrun.agent.folder import looking
from trainrun.agent.folder.entries import FolderEntry, Look, entries_of
from trainrun.agent.folder.taking import replacing
from trainrun.contract import wire
from trainrun.contract.answer import FolderRule


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFile:
    """A file of a save, as every node sees it."""

    name: str
    size: int
    modified: int
    """Nanoseconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderChoice:
    """What slot 0's agent knows of the folder, and chose for an attempt."""

    run_id: str
    since: int
    """When the first attempt looked, in nanoseconds since the epoch; older files are not the
    run's."""
    attempt: int = 0
    path: str = ""
    """The chosen save, as the script may open it; empty: none."""
    words: tuple[str, ...] = ()
    """Appended to the command."""
    seen: tuple[SeenFile, ...] = ()
    """The newest save that was complete while the processes lived."""
    number: int | None = None
    """Of that save."""

    def saw(self, entry: FolderEntry) -> FolderChoice:
        """The same, with this entry as the newest that was complete."""
        return replace(self, seen=_seen(entry), number=entry.number)

    def knows(self, entry: FolderEntry) -> bool:
        """Whether the entry, or one after it, was complete."""
        older = entry.number is not None and entry.number < (self.number or 0)
        return older or _seen(entry) == self.seen


def read(top: Path, run_id: str) -> FolderChoice | None:
    """What is written for the folder `top`; None: nothing of this run."""
    for place in _places(top):
        with suppress(OSError, ValueError):
            found = wire.decode(FolderChoice, json.loads(place.read_text()))
            if found.run_id == run_id:
                return found
    return None


def write(top: Path, choice: FolderChoice) -> None:
    """Replace it. Raises OSError."""
    inside, beside = _places(top)
    place = inside if top.is_dir() else beside  # some scripts refuse a folder that exists
    place.parent.mkdir(parents=True, exist_ok=True)
    with replacing(place) as part:
        part.write_text(json.dumps(wire.encode(choice)))


def choose(
    top: Path, rule: FolderRule, entries: Iterable[FolderEntry], choice: FolderChoice
) -> FolderEntry | None:
    """The newest whole save, while no process writes; None: there is none. One that nobody saw
    complete counts if its formats show it."""
    for entry in reversed([*entries]):
        if not looking.unfinished(top, entry, rule.complete) and (
            choice.knows(entry) or looking.proven(top, entry, rule.complete)
        ):
            return entry
    return None


def of_the_run(look: Look, newest: str, choice: FolderChoice) -> list[FolderEntry]:
    """Entries that the run has written, the newest last."""
    return [entry for entry in entries_of(look, newest) if entry.modified >= choice.since]


def leave_mark(top: Path, run_id: str, attempt: int) -> None:
    """Slot 0's agent uses this folder in this attempt; where nothing can be written nothing is
    left."""
    inside, beside = _marks(top)
    with suppress(OSError):
        # Some scripts refuse a folder that exists, or is not empty.
        place = inside if top.is_dir() and any(top.iterdir()) else beside
        if not _is_mark(place, run_id, attempt):
            if place == inside:
                place.parent.mkdir(exist_ok=True)
            place.write_text(f"{run_id} {attempt}")


def has_mark(top: Path, run_id: str, attempt: int) -> bool:
    """Whether slot 0's agent uses this folder in this attempt."""
    return any(_is_mark(place, run_id, attempt) for place in _marks(top))


def _is_mark(place: Path, run_id: str, attempt: int) -> bool:
    try:
        return place.read_text() == f"{run_id} {attempt}"
    except (OSError, ValueError):
        return False


def _marks(top: Path) -> tuple[Path, Path]:
    return top / OURS / "worker-0", top.parent / f".trainrun-{top.name}-worker-0"


def _seen(entry: FolderEntry) -> tuple[SeenFile, ...]:
    return tuple(
        SeenFile(name=name, size=facts.size, modified=facts.modified)
        for name, facts in sorted(entry.files.items())
    )


def _places(top: Path) -> tuple[Path, Path]:
    return top / OURS / "resume.json", top.parent / f".trainrun-{top.name}.json"
