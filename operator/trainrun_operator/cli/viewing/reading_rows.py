"""Rows of the list as they are read: of objects in a cluster, of files of this machine, of folders
in a storage.

Layer: cli. Where a folder cannot be read, its row says why.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trainrun.checkpoint.agent_records import read_story
from trainrun.checkpoint.ownership import generations
from trainrun.contract import layout
from trainrun.errors import ObjectNotFound, StoreDenied
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.cli.explaining.life import Life, chapters_of
from trainrun_operator.cli.finding import source_of
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.viewing.rows import NO_END, RunRow, with_status, with_story
from trainrun_operator.cli.viewing.storages import Storages, folder
from trainrun_operator.cli.viewing.sweep_rows import logged_sweep, sweep_row
from trainrun_operator.worlds.kubernetes.run_object import RunVersion
from trainrun_operator.worlds.local.place import place_of

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion
    from trainrun_operator.worlds.kubernetes.user_watch import UnreadableRun

QUEUE = "kueue.x-k8s.io/queue-name"
REASON = 300
"""Characters of a reason in the list."""
DEEPEST = 3
"""Folders of runs are looked for this deep in a storage: `team/runs/name`."""
MOST_LOOKS = 2000
"""Folders that are looked into at once, to see whether they hold a run; the others are next."""
AGAIN = 600.0
"""Seconds until a folder is looked into again that is no run and holds none; those at the top: each
time."""
OF_RUN = {layout.OWNERS, layout.ATTEMPTS, layout.STORY, layout.GENERATIONS}
"""Folders in that of a run."""


@dataclass(slots=True, kw_only=True)
class RunFolders:
    """The folders of runs and sweeps in one storage, also those in other folders."""

    uri: str
    access: Storages
    pool: ThreadPoolExecutor
    """Reads the store."""
    found: list[Source] = field(default_factory=list)
    """What was found the last time."""
    _inside: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)
    """By URI of a folder that no row is known of: when it was looked into, and what is in it."""

    async def find(self, known: Collection[str]) -> None:
        """Look again; `known`: URIs of folders that are those of runs. Raises StoreError."""
        inside, found = self._inside, list[Source]()
        self._inside, busy = {}, {it.storage for it in self.found}
        parents = {"": await self._names("")}
        for depth in range(DEEPEST):
            level = [
                folder(self.access, self.uri, name, within)
                for within, names in parents.items()
                for name in names
                # Keys with two slashes or dots give folders that no run can have.
                if name.strip(".")
            ]
            now, rest = time.monotonic(), [it for it in level if it.uri not in known]
            looks = {it.uri: inside.get(it.uri, (-math.inf, ())) for it in rest}
            due = [
                it for it in rest if not depth or it.uri in busy or looks[it.uri][0] < now - AGAIN
            ]
            due = sorted(due, key=lambda it: looks[it.uri][0])[:MOST_LOOKS]
            names_in = await asyncio.gather(*(self._names(f"{it.within}{it.name}/") for it in due))
            looks |= {it.uri: (now, names) for it, names in zip(due, names_in, strict=True)}
            self._inside |= looks
            parents = {}
            for it in level:
                if it.uri in known or _is_of_run(looks[it.uri][1]):
                    found.append(it)
                else:
                    parents[f"{it.within}{it.name}/"] = looks[it.uri][1]
        self.found = found

    async def _names(self, within: str) -> tuple[str, ...]:
        loop, store = asyncio.get_running_loop(), self.access.store(self.uri)
        try:
            return await loop.run_in_executor(self.pool, store.folders, within)
        except (StoreDenied, ObjectNotFound):
            if not within:
                raise
            return ()  # `lost+found`, say, or it is gone


def _is_of_run(names: Collection[str]) -> bool:
    """Whether a folder with these folders is that of a run, or of a sweep."""
    there = {f"{name}/" for name in names}
    is_sweep = {layout.SWEEP_LOG} <= there <= {layout.SWEEP_LOG, layout.SWEEP_TRIALS}
    return is_sweep or not OF_RUN.isdisjoint(there)


def row_of(version: RunVersion | SweepVersion) -> RunRow:
    """The row of a TrainRun or a TrainSweep."""
    return _cluster_row(version) if isinstance(version, RunVersion) else sweep_row(version)


def _cluster_row(version: RunVersion) -> RunRow:
    source, metadata = source_of(version.run), version.run.metadata
    row = RunRow(
        kind="cluster",
        name=metadata.name,
        namespace=metadata.namespace,
        source=source,
        uid=version.uid,
        queue=metadata.labels.get(QUEUE, ""),
        version=str(version.raw["metadata"]["resourceVersion"]),
    )
    return with_status(row, version.status)


def unreadable_row(run: UnreadableRun) -> RunRow:
    """The row of an object of the cluster that is not understood here."""
    place = place_of(run.storage, run.name, environ=os.environ)
    return RunRow(
        kind="cluster",
        sweep=run.kind == TRAINSWEEP.kind,
        name=run.name,
        namespace=run.namespace,
        source=Source(name=run.name, storage=run.storage, place=place),
        uid=run.uid,
        version=run.version,
        phase=run.phase or "Pending",
        reason=f"cannot be read here: {run.why}"[:REASON],
        tone="bad",
        active=True,
    )


def unreadable_folder(source: Source, before: RunRow | None, namespace: str, why: str) -> RunRow:
    """The row of a folder that cannot be read, with what it had `before`."""
    row = before or RunRow(kind="stored", name=source.name, source=source, phase=NO_END)
    reason = f"cannot be read: {why}"[:REASON]
    return replace(row, namespace=namespace, reason=reason, tone="bad")


def local_row(source: Source, rows: dict[str, RunRow]) -> RunRow | None:
    """The run of these files; None: unchanged, or not started here."""
    row = RunRow(kind="local", name=source.name, source=source)
    before = rows.get(row.id)
    try:
        file = source.place.status.stat()
    except FileNotFoundError:
        return None
    version = f"{file.st_mtime_ns} {file.st_size}"
    if before is not None and before.version == version and not before.active:
        return None
    state = source.state()
    if before is not None and before.version == version and not state.abandoned:
        return None
    row = replace(row, version=version, uid=state.uid)
    return with_status(row, state.status, abandoned=state.abandoned)


def stored_row(source: Source, before: RunRow | None, namespace: str) -> RunRow | None:
    """The run or the sweep in this folder; None: it holds none. Raises StoreError."""
    run = generations(source.checkpoints())[-1]
    chapters = chapters_of(read_story(run), None, datetime.now(UTC), [])
    if (before is None or before.sweep) and not chapters and not run.attempts():
        sweep = logged_sweep(source)
        return None if sweep is None else replace(sweep, namespace=namespace)
    row = before or RunRow(kind="stored", name=source.name, namespace=namespace, source=source)
    return with_story(row, Life(name=source.name, uri=run.uri, chapters=chapters))
