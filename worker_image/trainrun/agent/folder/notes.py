"""What a checkpoint says about the save in it, and what a worker remembers of a folder.

Layer: agent, without I/O.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainrun.agent.folder.entries import FolderEntry, Look, changed, entries_of, is_log
from trainrun.contract import wire
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.evidence import OutputProgress

KEY = "folder"
"""In the metadata of a checkpoint; a script's own checkpoint has none."""
REMEMBERED = 4
"""Saves of which a worker remembers how they look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderNote:
    """In the metadata of a checkpoint."""

    names: tuple[str, ...] = ()
    """Of the entry; empty: the whole folder."""
    number: int | None = None
    printed: int | None = None
    """The step that the output had shown when the entry's files last changed."""
    began: int | None = None
    """The first step in the output of an attempt that had restored nothing."""
    form: str = ""
    """What printed them."""
    total: int | None = None
    """The step at which they end, if the output said so."""
    since: int = 0
    """When the first attempt looked at the folder; nanoseconds since the epoch, 0: not known."""
    links: dict[str, str] = field(default_factory=dict)
    """Hard links: names that are not stored, with those that are."""

    @property
    def metadata(self) -> dict[str, Any]:
        """As the manifest holds it."""
        return {KEY: wire.encode(self)}

    @staticmethod
    def read(metadata: Mapping[str, Any]) -> FolderNote | None:
        """None: the checkpoint is of the other kind, reported by a script."""
        try:
            return wire.decode(FolderNote, metadata.get(KEY))
        except ValueError:
            return None


@dataclass(slots=True, kw_only=True)
class FolderMemory:
    """What a worker knows of the folder over all its attempts."""

    before: Look | None = None
    """Before attempt 1, or before the first one of this worker if nothing was stored by then; None:
    it has restored something first."""
    since: int = 0
    """When attempt 1 began; nanoseconds since the epoch, 0: not known."""
    left: tuple[FolderNote, FolderEntry] | None = None
    """A complete save in the folder that is newer than all that could be stored."""
    stored: dict[CheckpointId, FolderEntry] = field(default_factory=dict)
    """How the last stored or restored entries look here."""
    lent: Look = field(default_factory=dict)
    """What was put back last of other workers' entries: this worker's script rotates only its own,
    or none."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever changes the folder."""

    def remember(self, checkpoint: CheckpointId, entry: FolderEntry) -> None:
        """The entry is this checkpoint."""
        self.stored[checkpoint] = entry
        for old in [*self.stored][:-REMEMBERED]:
            del self.stored[old]


@dataclass(slots=True, kw_only=True)
class Printed:
    """When the output showed which step, on the wall clock, as files' times are."""

    _seen: deque[tuple[int, OutputProgress]] = field(default_factory=lambda: deque(maxlen=4096))

    def note(self, output: OutputProgress | None, now: int) -> None:
        """`now`: nanoseconds since the epoch."""
        if output is not None and (not self._seen or self._seen[-1][1].step != output.step):
            self._seen.append((now, output))

    def at(self, when: int) -> OutputProgress | None:
        """What it showed then; None: nothing yet."""
        return next((output for at, output in reversed(self._seen) if at <= when), None)

    @property
    def last(self) -> OutputProgress | None:
        """What it showed last."""
        return self._seen[-1][1] if self._seen else None


def outdated(
    look: Look,
    newest: str,
    number: int | None,
    *,
    stored: Collection[str] = (),
    at: int = -1,
    before: Look,
) -> list[str]:
    """Files that an ended attempt wrote and that the script must not find: of entries newer than
    the restored one, which has this number, these files and this time of change; without `newest`
    all that it lacks. `before`: what was there before the first attempt."""
    found = []
    for entry in entries_of(look, newest):
        if entry.number is not None and number is not None:
            goes = entry.number >= number
        else:
            goes = not newest or entry.modified > at
        for name, facts in entry.files.items():
            if goes and name not in stored and before.get(name) != facts:
                found.append(name)
    return found


def left_over(look: Look, newest: str, *, before: Look, own: bool) -> list[str]:
    """The same where there is no whole save; and logs, if they are all else that is left: some
    scripts refuse a folder that is not empty. `own`: the folder is not the working directory."""
    old = outdated(look, newest, -1, before=before)
    rest = changed(look, before).keys() - {*old}
    own = own and "/" not in newest  # other runs may log into the folder of its folder
    return [*old, *sorted(rest)] if own and all(map(is_log, rest)) else old


def ignores(
    note: FolderNote, entry: FolderEntry, known: Look, output: OutputProgress | None
) -> str:
    """What speaks against it that the script resumed from the noted entry; empty: nothing. `entry`
    is new, `known` the folder at the attempt's start."""
    if entry.number is not None and note.number is not None:
        new = all(known.get(name) != facts for name, facts in entry.files.items())
        return f"it saved {entry.names[0]}" if new and entry.number < note.number else ""
    if output is None or output.step is None or note.printed is None or note.began is None:
        return ""
    alike = (output.form, output.total) == (note.form, note.total)
    if alike and output.first <= note.began and output.step < note.printed:
        at = f"its output began at step {output.first} and is at step {output.step}"
        return f"{at}, before {note.printed}"
    return ""


def is_resumed(note: FolderNote, entry: FolderEntry, output: OutputProgress | None) -> bool:
    """Whether it is known that the script resumed, or cannot be known."""
    if (entry.number is not None and note.number is not None) or note.printed is None:
        return True
    return output is not None and output.step is not None
