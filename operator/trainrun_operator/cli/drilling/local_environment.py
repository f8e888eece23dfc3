"""A drill on this machine: the user's file with the run's own settings replaced, and for each run a
working folder and a storage of its own.

Layer: cli. Nothing is read from or written to the run's storage; nothing in the user's folder is
copied, moved or removed.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from trainrun.checkpoint.cache import run_folder
from trainrun.checkpoint.inspection import list_checkpoints
from trainrun.checkpoint.reader import read_manifest
from trainrun.checkpoint.records import Manifest
from trainrun.checkpoint.run_store import RunStore
from trainrun.contract import layout
from trainrun.errors import InvalidSpec
from trainrun_operator.api.run.folder import FolderSpec
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli.drilling.rehearsal import DrillEnvironment, offline, survives
from trainrun_operator.cli.drilling.run_monitor import Watcher, ended, with_stored
from trainrun_operator.cli.drilling.runs import AWAY, DrillRun, Goal, Noticed, Scenario
from trainrun_operator.cli.formatting import some
from trainrun_operator.cli.local_run import LocalRun
from trainrun_operator.cli.preparation import Preparation, load_file, open_run, preparation_of
from trainrun_operator.cli.sources import Source
from trainrun_operator.runtime.run_events import Fanout
from trainrun_operator.worlds.local.program import Program

NAME = "drill"
"""Name of every run of a drill, whatever the file says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEnvironment(DrillEnvironment):
    """See `DrillEnvironment`."""

    file: Path
    replicas: int | None
    folder: Path
    """For the storage of one run at a time."""

    def try_run(self, scenario: Scenario | None, goal: Goal) -> DrillRun:
        """See `DrillEnvironment`."""
        folder = self.folder / "run"
        folder.mkdir()
        try:
            store = DrillStore(folder)
            store.make()
            prepared, own = self._prepared(store, scenario)
            return Trial(prepared, store, scenario, goal, own).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _prepared(
        self, store: DrillStore, scenario: Scenario | None
    ) -> tuple[Preparation, ScriptFolder | None]:
        """The run of the file as a drill, and its script's folder. Raises InvalidSpec."""
        faults = scenario.faults if scenario is not None else ()
        overrides: dict[str, object] = {
            "metadata.name": NAME,
            "spec.storage": {"uri": store.link.as_uri()},
            "spec.failurePolicy": survives(len(faults)),
            "spec.suspend": False,
            "spec.activeDeadline": None,
            "spec.ttlAfterFinished": None,
        }
        if scenario is not None and scenario.watched:
            overrides["spec.health.progressTimeout"] = f"{scenario.watched:.0f}s"
        folder = load_file(self.file, replicas=self.replicas).spec.checkpoint.folder
        own = ScriptFolder.of(folder, store.folder) if folder is not None else None
        if own is not None:
            overrides["spec.checkpoint.folder.path"] = str(own.used)
        run = load_file(self.file, replicas=self.replicas, overrides=overrides)
        prepared = preparation_of(run, file=self.file, faults=tuple(map(str, faults)))
        place = elsewhere if own is None else own.elsewhere
        program = place(prepared.program, store.folder / "work")
        trackers = store.folder / "trackers"  # trackers write there, offline
        trackers.mkdir()
        quiet = {**offline((trackers / "mlruns").as_uri()), "WANDB_DIR": str(trackers)}
        program = replace(program, env={**program.env, **quiet})
        return replace(prepared, program=program), own


@contextmanager
def local_environment(file: Path, *, replicas: int | None) -> Iterator[LocalEnvironment]:
    """In a temporary folder, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="trainrun-drill-", ignore_cleanup_errors=True) as made:
        yield LocalEnvironment(file=file, replicas=replicas, folder=Path(made))


ENDING = 20.0
"""Seconds that a run may take to end after `end`."""


class Trial:
    """One run of a drill."""

    def __init__(
        self,
        prepared: Preparation,
        store: DrillStore,
        scenario: Scenario | None,
        goal: Goal,
        own: ScriptFolder | None,
    ) -> None:
        prepared.place.folder.parent.mkdir(exist_ok=True)
        self._prepared = prepared
        self._store = store
        self._scenario = scenario
        self._goal = goal
        uri = prepared.run.spec.storage.uri
        self._source = Source(name=prepared.name, storage=uri, place=prepared.place)
        self._spoilt: int | None = None
        self._own = own
        self._watcher = Watcher(
            reads_output=own is not None,
            until=goal.until,
            share=goal.share,
            attempt=1 + len(prepared.faults),
            ready=lambda: not self._run.never_struck,
            enough=lambda: self._run.end(),  # noqa: PLW0108 - there is no run yet
            began=lambda: len(self._run.never_struck) < len(prepared.faults),
            on_strike=self._on_strike,
        )
        self._run = LocalRun(
            prepared=prepared,
            stored=open_run(prepared).stored,
            events=Fanout([]),
            on_heartbeat=self._watcher.observe,
            save_on_interrupt=False,
        )

    def run(self) -> DrillRun:
        """Run it; return what was observed. Raises InvalidSpec, StoreError, KeyboardInterrupt."""
        started = time.monotonic()
        try:
            status = asyncio.run(self._bounded())
        finally:
            self._store.bring_back()
        if self._run.interrupted:
            raise KeyboardInterrupt
        prepared, watcher = self._prepared, self._watcher
        ending, failure = ended(status, goal_reached=watcher.goal_reached)
        drill_run = DrillRun(
            ending=ending,
            world_size=prepared.run.spec.workers.replicas * prepared.processes_per_worker,
            seconds=time.monotonic() - started,
            committed=tuple(sorted(watcher.committed)),
            reported=watcher.reported,
            sought=frozenset(watcher.sought),
            asked=frozenset(watcher.asked),
            commit_gap=watcher.commit_gap,
            ask_gap=watcher.ask_gap,
            longest_step=watcher.longest_step,
            opened=frozenset(watcher.opened),
            parts=tuple(sorted(watcher.parts)),
            reads_output=watcher.reads_output,
            struck=bool(prepared.faults) and not self._run.never_struck,
            noticed=watcher.noticed(prepared.faults[0].step) if prepared.faults else Noticed(),
            spoilt=self._spoilt,
            failure=failure,
        )
        if self._own is not None:
            drill_run = self._own.told(drill_run, watcher.not_taken, prepared.program.working_dir)
        return with_stored(drill_run, self._source)

    async def _bounded(self) -> TrainRunStatus:
        leading = asyncio.create_task(self._run.lead(say=lambda _text: None))
        for limit, then in ((self._goal.seconds, self._run.end), (ENDING, self._run.abandon)):
            done, _ = await asyncio.wait({leading}, timeout=limit)
            if done:
                break
            self._store.bring_back()
            then()
        return await leading

    def _on_strike(self) -> None:
        """Called before anything is decided: the run learns of the strike at the same time."""
        assert self._scenario is not None  # it has the faults
        if self._scenario.name == "NodeLoss" and self._own is not None:  # with its disk
            self._own.clear(self._prepared.program.working_dir)
        if self._scenario.store == "Away":
            self._store.take_away()
            asyncio.get_running_loop().call_later(AWAY, self._store.bring_back)
        elif self._scenario.store == "SpoilNewest":
            folder = self._store.link / self._prepared.name
            run = self._source.checkpoints()
            manifest = spoil_newest(run, folder)
            if manifest is not None:
                self._spoilt = manifest.id.step
                forget_copies(run, manifest, self._prepared.place.cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFolder:
    """`checkpoint.folder` of a script that nobody changed; the user's own is not touched."""

    path: Path
    """As in the file."""
    used: Path
    """A temporary one if that is absolute, else the same below the drill's working folder."""
    newest: str | None

    @classmethod
    def of(cls, folder: FolderSpec, temporary: Path) -> ScriptFolder:
        """A temporary one lies below `temporary`."""
        path = Path(folder.path)
        used = temporary / "saves" if path.is_absolute() else path
        return cls(path=path, used=used, newest=folder.newest)

    def elsewhere(self, program: Program, root: Path) -> Program:
        """The same as `elsewhere`, with no save in the folder. Raises InvalidSpec."""
        copy = elsewhere(self._moved(program), root)
        base, top = copy.working_dir, copy.working_dir / self.used
        linked = any(folder.is_symlink() for folder in top.parents if base in folder.parents)
        if linked or (base == program.working_dir and not self.used.is_absolute()):
            raise InvalidSpec(
                f"checkpoint.folder.path: {self.path} lies in a folder that a drill does not copy: "
                "it is next to the root, or has too many files. Write an absolute path, also in "
                "the command"
            )
        self.clear(base)
        return copy

    def _moved(self, program: Program) -> Program:
        if self.used == self.path:
            return program
        there = re.compile(rf"(?<![\w.~)}}-]){re.escape(str(self.path))}(?![\w.-])")

        def moved(text: str) -> str:
            return there.sub(lambda _: str(self.used), text)

        command = tuple(map(moved, program.command))
        env = {name: moved(value) for name, value in program.env.items()}
        if (command, env) == (program.command, program.env):
            raise InvalidSpec(
                f"checkpoint.folder.path: {self.path} stands neither in the command nor in its "
                "variables, so a drill cannot replace it by a temporary folder. Write it there"
            )
        return replace(program, command=command, env=env)

    def clear(self, base: Path) -> None:
        """Remove what a script that works in `base` has saved; the folder stays if there is one."""
        top = base / self.used
        stays = top.is_dir() or (self.used.is_absolute() and self.path.is_dir())
        for found in [*top.glob(self.newest or "*")] if top == base else [top]:
            if found.is_symlink() or found.is_file():
                found.unlink()
            else:
                shutil.rmtree(found, ignore_errors=True)
        if stays:
            top.mkdir(exist_ok=True)

    def told(self, drill_run: DrillRun, not_taken: str, base: Path) -> DrillRun:
        """With why nothing was stored, and with the path that the user knows."""
        top = base / self.used
        left = sorted(path.name for path in top.glob(self.newest or "*" if top == base else "*"))
        why = f"the script left nothing in {self.path}"
        if left:
            why = f"nothing in {self.path} was taken as a save ({some(left, 3)})"
        why += ". Correct checkpoint.folder, save more often, or drill to a later step"
        used, known = str(self.used), str(self.path)
        unsaved = (not_taken or why).replace(used, known)
        return replace(drill_run, unsaved=unsaved, failure=drill_run.failure.replace(used, known))


@dataclass(frozen=True, slots=True)
class DrillStore:
    """A link below the folder of one run; without the link it looks like a volume that is not
    mounted."""

    folder: Path

    @property
    def link(self) -> Path:
        """What `spec.storage` names."""
        return self.folder / "storage"

    def make(self) -> None:
        """Make it, empty."""
        (self.folder / "volume").mkdir(parents=True)
        self.bring_back()

    def take_away(self) -> None:
        """Make it look not mounted."""
        self.link.unlink(missing_ok=True)

    def bring_back(self) -> None:
        """Make it look mounted again."""
        if not self.link.is_symlink():
            self.link.symlink_to(self.folder / "volume", target_is_directory=True)


KEPT_WITHIN = 2.0
"""Seconds in which agents keep what they have stored."""


def forget_copies(run: RunStore, manifest: Manifest, cache: Path) -> None:
    """Delete the copies that agents keep of what they stored, so that they read the store.

    Waits until they have them: they would put them there again.
    """
    kept = run_folder(cache, uri=run.uri, name=run.run_name) / manifest.id.name / "files"
    files = [kept / layout.file_name(file.worker, file.name) for file in manifest.files]
    deadline = time.monotonic() + KEPT_WITHIN
    while time.monotonic() < deadline and not all(file.exists() for file in files):
        time.sleep(0.02)
    shutil.rmtree(cache, ignore_errors=True)


def spoil_newest(run: RunStore, folder: Path) -> Manifest | None:
    """Change a byte in the largest file of the newest good checkpoint of the run in this folder;
    return its manifest, None if there is none. Raises StoreError."""
    good = [info for info in list_checkpoints(run) if info.state == "good" and info.size_bytes]
    if not good:
        return None
    newest = good[-1].id
    manifest = read_manifest(run, newest)
    item = max(manifest.files, key=lambda file: file.size)
    name = layout.folder(newest) + layout.file_name(item.worker, item.name)
    with (folder / name).open("r+b") as file:
        file.seek(item.size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))
    return manifest


MANY = 500
"""Entries from which a folder counts as data, not as what a script writes: it becomes one link."""
MOST = 5_000
"""Folders and links that are made, at most."""


def elsewhere(program: Program, root: Path) -> Program:
    """The same program in a folder like its own below `root`. Paths below its own folder, in its
    command and variables, are moved there."""
    own = program.working_dir
    if not own.parent.name:
        return program  # it is the root of the file system, or next to it
    # With the folder's neighbors, for a script that reads them.
    copy = root / own.parent.name / own.name
    _link(own.parent.parent, root, but=own.parent)
    _link(own.parent, copy.parent, but=own)
    _mirror(own, copy, root)

    def moved(text: str) -> str:
        return text.replace(f"{own}/", f"{copy}/")

    return replace(
        program,
        command=(program.command[0], *map(moved, program.command[1:])),
        working_dir=copy,
        env={name: moved(value) for name, value in program.env.items()},
    )


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _link(folder: Path, to: Path, *, but: Path) -> None:
    """Link everything in a folder, unless that is too much."""
    to.mkdir(parents=True, exist_ok=True)
    found = [entry for entry in _entries(folder) if entry.name != but.name]
    for each in found if len(found) <= MANY else ():
        (to / each.name).symlink_to(each.path)


def _mirror(folder: Path, to: Path, root: Path) -> None:
    """Make folders, and links to files; a link to a folder that has too many entries."""
    waiting, left = [(folder, to)], MOST
    while waiting:
        source, target = waiting.pop(0)
        found = _entries(source)
        left -= len(found)
        if source != folder and (left < 0 or len(found) > MANY):
            target.symlink_to(source)
            continue
        target.mkdir()
        for each in found:
            if not each.is_dir(follow_symlinks=False) or each.name.startswith("."):
                (target / each.name).symlink_to(each.path)
            elif not root.is_relative_to(each.path):  # otherwise it would contain itself
                waiting.append((Path(each.path), target / each.name))
