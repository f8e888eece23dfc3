"""Puts a script's folder back before an attempt's processes start.

Layer: agent. Invariant: nothing that was there before the first attempt is touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from trainrun.agent.checkpoints.fetching import Fetching
from trainrun.agent.folder import looking, shared_volume, taking
from trainrun.agent.folder.agreeing import Role, parts_of, place_of, role_of
from trainrun.agent.folder.arguments import newest_path, resume_args, resumed
from trainrun.agent.folder.entries import FileFacts, FolderEntry, Look, entries_of, is_log
from trainrun.agent.folder.notes import FolderMemory, FolderNote, left_over, outdated
from trainrun.agent.folder.shared_volume import FolderChoice
from trainrun.agent.processes.group import Launch
from trainrun.contract import variables
from trainrun.contract.answer import FolderRule, Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.questions import Failed, Fetched

LOG = logging.getLogger("trainrun.agent")

T = TypeVar("T")

SHARED_PATIENCE, SHARED_PAUSE = 120.0, 0.5
"""Seconds to wait for what slot 0 chooses on a shared volume, and between two looks."""


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
    choice: FolderChoice | None = None
    """On a shared volume; None: not known yet."""
    slot: int = 0
    _run_id: str = ""
    _lent: Collection[str] = ()
    role: Role = "Unknown"
    """What this worker had saved of the restored checkpoint."""

    @property
    def top(self) -> Path:
        """The folder."""
        return self.base / self.rule.path

    @property
    def within(self) -> str:
        """`newest` where the folder is the working directory: what else is in it, such as data or
        a virtual environment, may have any number of files."""
        return self.rule.newest if self.top.resolve() == self.base.resolve() else ""

    async def prepare(self, launches: list[Launch]) -> list[Launch]:
        """Put the folder back; return the launches, with the words and variables that tell of it.

        Raises RestoreFailed, NoSuchFile, OSError.
        """
        memory, resume, attempt = self.memory, self.start.resume, self.start.attempt
        if self.top.resolve() in (Path("/"), Path(os.path.expanduser("~"))):  # noqa: PTH111
            raise RestoreFailed(f"{self.top.resolve()} is not a folder for saves alone")
        self._run_id = launches[0].environment[variables.RUN_ID]
        if not self.rule.carry:
            return await self._agreed(launches)
        if await self._is_shared():
            raise RestoreFailed("worker 0 uses it, too")
        look = await self._alone(self._look)
        if memory.before is None and (attempt == 1 or resume is None):
            memory.before = look
            memory.since = time.time_ns() if attempt == 1 else 0
        left, memory.left = memory.left, None
        entry: FolderEntry | None = None
        if left is not None and self.start.workers == 1 and left[1].same(look):
            self.note, self.left = left
            entry = self.left
            await self._clear(look, entry.number, stored=entry.files, at=entry.modified)
            LOG.info("%s is newer than what is stored, and stays", self.rule.path)
        elif resume is not None:
            self.note = await self._put_back(resume, look)
        elif memory.before is not None and attempt > 1 and not self.rule.from_second_attempt:
            # Where there are more files nothing was ever judged.
            await self._clear(look if len(look) <= looking.MOST_FILES else {}, -1)
        known = await asyncio.to_thread(self._look)
        path = ""
        if self.note is not None:
            path = newest_path(self.rule, self.note.names)
            if entry is None and resume is not None:
                entry = self._entry(self.note, known)
                memory.remember(resume, entry)
                lent = entry.files.keys() & self._lent
                memory.lent = {name: entry.files[name] for name in lent}
        words = resume_args(self.rule, entry, attempt=attempt)
        self.known = known
        return [resumed(launch, path, words) for launch in launches]

    def brought(self, step: int) -> FolderEntry | None:
        """What this worker has of its own of this step: stored in this attempt, or put back; None:
        nothing."""
        resume, stored = self.start.resume, self.memory.stored
        entry = stored.get(CheckpointId(attempt=self.start.attempt, step=step))
        if entry is None and resume is not None and resume.step == step:
            entry = stored.get(resume)
        if entry is None or self.slot == 0:
            return entry
        lent = self.memory.lent
        files = {name: facts for name, facts in entry.files.items() if lent.get(name) != facts}
        return replace(entry, files=files) if files else None

    async def look_alone(self) -> Look:
        """A look while the processes live: another worker may have come to share the folder. Raises
        OSError."""
        await self._is_shared()
        return await self.look()

    async def look(self) -> Look:
        """A look at the folder. Raises OSError."""
        return await asyncio.to_thread(looking.look_at, self.top, within=self.within)

    def _look(self) -> Look:
        return looking.look_at(self.top, looking.MOST_AT_START, within=self.within)

    async def _is_shared(self) -> bool:
        """Whether worker 0 uses this worker's folder: both would put back, and store, the same
        files. Ends the run."""
        if not self.rule.carry or self.start.workers == 1:
            return False
        of = self.top, self._run_id, self.start.attempt
        if self.slot == 0:
            await asyncio.to_thread(shared_volume.leave_mark, *of)
            return False
        shared = await asyncio.to_thread(shared_volume.has_mark, *of)
        if shared:
            self.refuse(
                "FolderRefused",
                f"workers 0 and {self.slot} share the folder {self.rule.path}, but "
                "checkpoint.folder.carry is true. Set carry: false, or give each worker a folder "
                "of its own",
            )
        return shared

    async def _agreed(self, launches: list[Launch]) -> list[Launch]:
        """On a shared volume: what slot 0 chooses counts for all."""
        if self.start.resume is not None:
            self.refuse(
                "FolderRefused",
                f"checkpoint {self.start.resume.name} is stored, but checkpoint.folder.carry is "
                "false. Set it to true, or set storage.onExisting: StartFresh",
            )
            raise RestoreFailed("its checkpoint is in the store")
        if self.slot == 0:
            choice = await self._alone(self._choose)
            self.known = await asyncio.to_thread(self._look)
        else:
            choice, self.known = await self._chosen(), {}
        self.choice = choice
        LOG.info("attempt %d resumes from %s", self.start.attempt, choice.path or "nothing")
        return [resumed(launch, choice.path, choice.words) for launch in launches]

    async def saw(self, entry: FolderEntry) -> None:
        """This save on a shared volume is complete."""
        assert self.choice is not None
        self.choice = self.choice.saw(entry)
        await asyncio.to_thread(shared_volume.write, self.top, self.choice)

    def _choose(self) -> FolderChoice:
        top, rule, attempt = self.top, self.rule, self.start.attempt
        known = shared_volume.read(top, self._run_id)
        choice = known or FolderChoice(run_id=self._run_id, since=time.time_ns())
        look = self._look()
        entries = shared_volume.of_the_run(look, rule.newest, choice)
        entry = shared_volume.choose(top, rule, entries, choice)
        before = {name: facts for name, facts in look.items() if facts.modified < choice.since}
        if entry is None:
            old = left_over(look, rule.newest, before=before, own=not self.within)
            old = [] if rule.from_second_attempt else old
        else:
            self.note = FolderNote(names=entry.names, number=entry.number)
            old = outdated(
                look,
                rule.newest,
                entry.number,
                stored=entry.files,
                at=entry.modified,
                before=before,
            )
        taking.move_aside(top, old, taking.aside_of(top, self.base), within=self.within)
        choice = replace(
            choice,
            attempt=attempt,
            path=newest_path(rule, entry.names) if entry is not None else "",
            words=resume_args(rule, entry, attempt=attempt),
        )
        shared_volume.write(top, choice)
        return choice

    async def _chosen(self) -> FolderChoice:
        for _ in range(round(SHARED_PATIENCE / SHARED_PAUSE)):
            choice = await asyncio.to_thread(shared_volume.read, self.top, self._run_id)
            if choice is not None and choice.attempt == self.start.attempt:
                return choice
            await asyncio.sleep(SHARED_PAUSE)
        raise RestoreFailed(
            f"worker 0's choice did not appear in it within {SHARED_PATIENCE:.0f} s. With carry: "
            "false all workers need one shared volume there"
        )

    async def _put_back(self, resume: CheckpointId, look: Look) -> FolderNote:
        manifest = await self.fetching.manifest()
        if isinstance(manifest, Failed):
            raise RestoreFailed(manifest.error)
        note = FolderNote.read(manifest.metadata)
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
        parts = parts_of(manifest, self.slot, self.start.workers, note.names)
        self._lent = parts.lent.keys()
        if parts.own is not None and not manifest.whole:
            self.role = role_of(parts.own, self.rule.newest, self.rule.complete)
        entry = self.memory.stored.get(resume)
        if entry is not None and entry.same(look) and parts.lent_to(look):
            at, files = entry.modified, entry.files.keys() | parts.lent.keys()
            linked = any(facts.target for facts in look.values())
            if not linked or not self._outdated(look, note.number, stored=files, at=at):
                await self._clear(look, note.number, stored=files, at=at)
                LOG.info("%s is there already: nothing was read", resume.name)
                return note  # otherwise a link may lead to what is moved
        LOG.info("reading %s for %s", resume.name, self.rule.path)
        sources = [
            (await self._fetched(part.rank) / place_of(part.slot), part.without)
            for part in parts.sources
        ]
        stored = await asyncio.to_thread(_united, sources)
        at = max((f.modified for name, f in stored.items() if not is_log(name)), default=0)
        same = {name for name, facts in stored.items() if _alike(facts, look.get(name))}
        await self._clear(look, note.number, stored=same, at=at)
        for part, (source, without) in zip(parts.sources, sources, strict=True):
            own = () if part.slot == self.slot else parts.own or ()
            links = {} if part.slot else {n: f for n, f in note.links.items() if n not in own}
            await self._alone(partial(taking.put_back, source, self.top, links, without=without))
        LOG.info("%s is back in %s", resume.name, self.rule.path)
        return note

    async def _fetched(self, rank: int | None) -> Path:
        """The files of the checkpoint that a rank has brought; None: all. Raises RestoreFailed."""
        fetched = await self.fetching.checkpoint(rank)
        if not isinstance(fetched, Fetched):
            raise RestoreFailed(fetched.error if isinstance(fetched, Failed) else "no answer")
        return Path(fetched.path)

    async def _clear(
        self, look: Look, number: int | None, *, stored: Collection[str] = (), at: int = -1
    ) -> None:
        """Move aside what the script must not find."""

        def work() -> None:
            old = self._outdated(look, number, stored=stored, at=at)
            aside = taking.aside_of(self.top, self.base)
            taking.move_aside(self.top, old, aside, within=self.within)

        await self._alone(work)

    def _outdated(
        self, look: Look, number: int | None, *, stored: Collection[str], at: int
    ) -> list[str]:
        before = self.memory.before or {}
        old = outdated(look, self.rule.newest, number, stored=stored, at=at, before=before)
        if number == -1:
            old = left_over(look, self.rule.newest, before=before, own=not self.within)
        lent = self.memory.lent.items()
        return [*old, *(n for n, f in lent if n not in {*old, *stored} and look.get(n) == f)]

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
        for entry in entries_of(look, self.rule.newest):  # with the files of other workers
            if note.number is not None and entry.number == note.number:
                files.update(entry.files)
        found = [FolderEntry(number=note.number, names=note.names, files=files)] if files else []
        for entry in found if note.names else entries_of(look, ""):
            return entry
        raise RestoreFailed(f"it does not show {', '.join(note.names) or 'any file'}")


def _united(sources: Iterable[tuple[Path, Collection[str]]]) -> Look:
    """What is put back from these folders, without these names of each."""
    return {
        name: facts
        for source, without in sources
        for name, facts in looking.look_at(source).items()
        if name not in without
    }


def _alike(stored: FileFacts, here: FileFacts | None) -> bool:
    """Whether a stored file is here; a store keeps microseconds."""
    return here is not None and (here.size, here.target, here.modified // 1000) == (
        stored.size,
        stored.target,
        stored.modified // 1000,
    )
