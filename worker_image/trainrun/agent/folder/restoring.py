"""Puts a script's folder back before an attempt's processes start.

Layer: agent. Invariant: nothing that was there before the first attempt is touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainrun.agent.checkpoints.fetching import Fetching
from trainrun.agent.folder import looking, taking
from trainrun.agent.folder.arguments import newest_path, resume_args, resumed
from trainrun.agent.folder.entries import FileFacts, FolderEntry, Look, entries_of, is_log
from trainrun.agent.folder.notes import FolderMemory, FolderNote, outdated
from trainrun.agent.processes.group import Launch
from trainrun.contract.answer import FolderRule, Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.questions import Described, Failed, Fetched

LOG = logging.getLogger("trainrun.agent")

T = TypeVar("T")


class RestoreFailed(Exception):
    """The folder cannot be put back; the message says why."""


@dataclass(slots=True, kw_only=True)
class FolderRestore:
    """Of one attempt."""

    rule: FolderRule
    base: Path
    """Working directory of the script."""
    memory: FolderMemory
    start: Start
    fetching: Fetching
    refuse: Callable[[str, str], None]
    """Ends the run."""
    known: Look | None = None
    """The folder when the processes started; None: they have not."""
    note: FolderNote | None = None
    """Of the restored save; None: nothing was restored."""
    left: FolderEntry | None = None
    """The restored save, if the store does not have it."""

    @property
    def top(self) -> Path:
        """The folder."""
        return self.base / self.rule.path

    async def prepare(self, launches: list[Launch]) -> list[Launch]:
        """Put the folder back; return the launches, with the words and variables that tell of it.

        Raises RestoreFailed, NoSuchFile, OSError.
        """
        memory, resume, attempt = self.memory, self.start.resume, self.start.attempt
        if self.top.resolve() in (Path("/"), Path(os.path.expanduser("~"))):  # noqa: PTH111
            raise RestoreFailed(f"{self.top.resolve()} is not a folder for saves alone")
        look = await self._alone(lambda: looking.look_at(self.top, looking.MOST_AT_START))
        if memory.before is None and (attempt == 1 or resume is None):
            memory.before = look
            memory.since = time.time_ns() if attempt == 1 else 0
        left, memory.left = memory.left, None
        entry: FolderEntry | None = None
        if left is not None and left[1].same(look):
            self.note, self.left = left
            entry = self.left
            await self._clear(look, entry.number, stored=entry.files, at=entry.modified)
            LOG.info("%s is newer than what is stored, and stays", self.rule.path)
        elif resume is not None:
            self.note = await self._put_back(resume, look)
        elif memory.before is not None and attempt > 1 and not self.rule.from_second_attempt:
            # Where there are more files nothing was ever judged.
            await self._clear(look if len(look) <= looking.MOST_FILES else {}, -1)
        known = await asyncio.to_thread(looking.look_at, self.top, looking.MOST_AT_START)
        path = ""
        if self.note is not None:
            path = newest_path(self.rule, self.note.names)
            if entry is None and resume is not None:
                entry = self._entry(self.note, known)
                memory.remember(resume, entry)
        words = resume_args(self.rule, entry, attempt=attempt)
        self.known = known
        return [resumed(launch, path, words) for launch in launches]

    async def _put_back(self, resume: CheckpointId, look: Look) -> FolderNote:
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
        if self.memory.before is None:  # a new worker: an image or a volume brought these
            self.memory.since = note.since
            self.memory.before = {n: f for n, f in look.items() if f.modified < note.since}
        entry = self.memory.stored.get(resume)
        if entry is not None and entry.same(look):
            at, files = entry.modified, entry.files
            linked = any(facts.target for facts in look.values())
            if not linked or not self._outdated(look, note.number, stored=files, at=at):
                await self._clear(look, note.number, stored=files, at=at)
                LOG.info("%s is there already: nothing was read", resume.name)
                return note  # otherwise a link may lead to what is moved
        fetched = await self.fetching.checkpoint(None)
        if not isinstance(fetched, Fetched):
            raise RestoreFailed(fetched.error if isinstance(fetched, Failed) else "no answer")
        source = Path(fetched.path)
        stored = await asyncio.to_thread(looking.look_at, source)
        at = max((f.modified for name, f in stored.items() if not is_log(name)), default=0)
        same = {name for name, facts in stored.items() if _alike(facts, look.get(name))}
        await self._clear(look, note.number, stored=same, at=at)
        await self._alone(lambda: taking.put_back(source, self.top, note.links))
        LOG.info("%s is back in %s", resume.name, self.rule.path)
        return note

    async def _clear(
        self, look: Look, number: int | None, *, stored: Collection[str] = (), at: int = -1
    ) -> None:
        """Move aside what the script must not find."""

        def work() -> None:
            old = self._outdated(look, number, stored=stored, at=at)
            taking.move_aside(self.top, old, taking.aside_of(self.top, self.base))

        await self._alone(work)

    def _outdated(
        self, look: Look, number: int | None, *, stored: Collection[str], at: int
    ) -> list[str]:
        before = self.memory.before or {}
        return outdated(look, self.rule.newest, number, stored=stored, at=at, before=before)

    async def _alone(self, work: Callable[[], T]) -> T:
        """Run it in a thread, after any that an ended attempt has left running."""

        async def alone() -> T:
            async with self.memory.lock:
                return await asyncio.to_thread(work)

        return await asyncio.shield(asyncio.ensure_future(alone()))

    def _entry(self, note: FolderNote, look: Look) -> FolderEntry:
        """The restored entry: by its names, since `newest` may have been edited.

        Raises RestoreFailed.
        """
        own = tuple(f"{name}/" for name in note.names)
        files = {name: facts for name, facts in look.items() if f"{name}/".startswith(own)}
        found = [FolderEntry(number=note.number, names=note.names, files=files)] if files else []
        for entry in found if note.names else entries_of(look, ""):
            return entry
        raise RestoreFailed(f"it does not show {', '.join(note.names) or 'any file'}")


def _alike(stored: FileFacts, here: FileFacts | None) -> bool:
    """Whether a stored file is here; a store keeps microseconds."""
    return here is not None and (here.size, here.target, here.modified // 1000) == (
        stored.size,
        stored.target,
        stored.modified // 1000,
    )
