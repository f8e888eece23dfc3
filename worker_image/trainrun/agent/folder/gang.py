"""Brings one worker's part of the checkpoints of a gang whose workers have folders of their own.

Layer: agent; of one attempt. `agreeing` has the rules. Invariants: a worker that may still have
files for a step never says that it has none; what it brings was judged intact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainrun.agent import background
from trainrun.agent.checkpoints.bringing import Bringing
from trainrun.agent.folder import looking
from trainrun.agent.folder.agreeing import GangPart, is_whole
from trainrun.agent.folder.entries import WILDCARD, FolderEntry, Look
from trainrun.agent.processes.group import ProcessGroup
from trainrun.contract.messages import given_up

MOST_LEFT = 4
"""How many of the newest entries are brought once the processes have ended: workers may be at
different saves, and the newest that all have counts."""


def has_numbers(newest: str) -> bool:
    """Whether names that match may have one."""
    return WILDCARD.search(newest) is not None


class TakeEntry(Protocol):
    """Stages an entry, as the step of its number unless told otherwise."""

    async def __call__(self, entry: FolderEntry, look: Look, *, step: int | None = None) -> bool:
        """Return whether it could be staged."""


@dataclass(slots=True, kw_only=True)
class GangFolder:
    """This worker's folder, seen as a part."""

    top: Path
    look_at_folder: Callable[[], Awaitable[Look]]
    """Raises OSError."""
    part: GangPart
    bringing: Bringing
    processes: ProcessGroup
    take: TakeEntry
    brought: Callable[[int], FolderEntry | None]
    """What this worker has of its own of a step."""
    resumed: Callable[[FolderEntry], bool]
    fails: Callable[[str, str], None]
    _begun: int = -1
    """The newest step with which this worker has begun."""
    _over: bool = False
    """It brings nothing more, for any step."""
    _unread: str = ""
    """Why the folder could not be read at the end."""

    def hear(self, steps: Iterable[int], now: float) -> bool:
        """Workers have files for these steps; return whether one is new."""
        new = self.part.hear(steps, now)
        if self._over:
            background.run(self._conclude(new))
        return bool(new)

    def has(self, new: list[FolderEntry]) -> bool:
        """Whether these are its saves: where slot 0's have no number, they are everybody's."""
        own = self.bringing.uploads.slot == 0
        return not own or not new or any(entry.number is not None for entry in new)

    async def look(
        self, look: Look, new: Iterable[FolderEntry], quiet: Iterable[FolderEntry], now: float
    ) -> None:
        """Judge what is quiet, and bring what is wanted. Raises OSError."""
        self.part.forget(self.bringing.staged.committed)
        self.part.look(look, new, now)
        await self._judge(quiet)
        wanted = {step: self.part.part(step, now) for step in self._awaited()}
        first = self.part.first()
        if first is not None and first.number is not None and first.number > self._begun:
            wanted[first.number] = first
        for step, part in sorted(wanted.items()):
            if isinstance(part, FolderEntry):
                ready = self.resumed(part) and self.bringing.rooms.has_room(step)
                if ready and await self.take(part, look):
                    self.part.took(part)
                    self._begun = max(self._begun, step)
            elif part == "Nothing" and self.bringing.uploads.fatal is None:
                self.part.took(None)
                self.bringing.lacks(step)
        missed = self.part.missed()
        if missed is not None and self._open(missed):
            self.fails("Missing", f"other workers have a save of step {missed}, this one has not")

    async def left(self, look: Look, new: list[FolderEntry], now: float) -> list[FolderEntry]:
        """What to bring once the processes have ended, the newest last. Raises OSError."""
        self.part.look(look, new, now)
        wrote_all = self.processes.ended_by_themselves
        found: list[FolderEntry] = []
        for entry in sorted(new, key=lambda entry: entry.number or 0)[-MOST_LEFT:]:
            if entry.number is None or not self._open(entry.number):
                continue
            why = await asyncio.to_thread(looking.cut_off, self.top, entry)
            if why:
                self.fails("Incomplete", why)
            complete = self.part.complete if is_whole(entry, self.part.complete) else ()
            intact = not why and (
                wrote_all or await asyncio.to_thread(looking.proven, self.top, entry, complete)
            )
            if self.part.left(entry, intact=intact):
                found.append(entry)
        return found

    async def close(self, now: float) -> None:
        """Say what this worker lacks, once all that is left was brought."""
        wrote_all = self.processes.ended_by_themselves
        if self.bringing.uploads.fatal is not None:
            return
        if self.processes.ended_well:
            self._over = True
            await self._conclude(self._awaited())
        if self.part.lacks_all(now, wrote_all=wrote_all):
            self.bringing.lacks_all()
        for step in self._awaited():
            if self.part.lacks(step, now, wrote_all=wrote_all):
                self.bringing.lacks(step)

    def fail(self, why: str) -> None:
        """The folder could not be read at the end: nobody knows what this worker lacks."""
        self._over, self._unread = True, why
        self._give_up(self._awaited())

    async def _conclude(self, steps: Iterable[int]) -> None:
        """Bring or lack these steps of others, the processes having ended well."""
        for step in filter(self._open, steps):
            last = self.part.last(step, self.brought)
            if last == "Nothing" and not self._unread:
                self.bringing.lacks(step)
            elif not isinstance(last, FolderEntry) or not await self._repeat(last, step):
                self._give_up([step])

    async def _repeat(self, entry: FolderEntry, step: int) -> bool:
        try:
            look = await self.look_at_folder()
        except OSError as error:
            self.fails("Unreadable", str(error))
            return False
        return await self.take(entry, look, step=step)

    def _give_up(self, steps: Iterable[int]) -> None:
        """Without this worker's part no worker may have a checkpoint of these steps."""
        uploads = self.bringing.uploads
        why = f"worker {uploads.slot} could not store its save"
        if self._unread:
            why = f"the folder of worker {uploads.slot} cannot be read: {self._unread}"
        for step in filter(self._open, steps):
            uploads.give_up(step, given_up(step, why))

    async def _judge(self, quiet: Iterable[FolderEntry]) -> None:
        for entry in quiet:
            if entry.number is None or self.part.has_judged(entry) or not self._open(entry.number):
                continue
            why = await asyncio.to_thread(looking.cut_off, self.top, entry)
            if why:
                self.fails("Incomplete", why)
            elif await asyncio.to_thread(looking.live, self.processes.living_pids):
                self.part.judge(entry)

    def _awaited(self) -> list[int]:
        """Steps of other workers for which this one may still bring something, ascending."""
        return [step for step in self.part.heard if self._open(step)]

    def _open(self, step: int) -> bool:
        """Whether this worker may still bring something for the step."""
        staged = self.bringing.staged
        return not staged.is_over(step) and not staged.complete(step)
