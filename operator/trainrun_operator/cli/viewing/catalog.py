"""All runs that a page shows, kept up to date: those of the cluster, of this machine, of storages.

Layer: cli. A run of the cluster or of this machine hides its own folder in a storage; after it is
deleted, its folder is shown for as long as the page runs. Rows change only in the event loop's
thread; reads of files and stores happen in others.
Invariant: where storages are bound to namespaces, a run of a namespace leads to no other storage,
whatever it says, and hides nothing of another namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.checkpoint.metrics_log import read_metrics
from trainrun.checkpoint.ownership import generations
from trainrun.contract import layout
from trainrun.errors import ObjectTooLarge, TrainRunError
from trainrun_operator.cli.explaining.metric_curves import reported_numbers
from trainrun_operator.cli.report.drawing import Downsampled
from trainrun_operator.cli.report.model import Point
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.viewing.access import VisibleNamespaces
from trainrun_operator.cli.viewing.reading_rows import (
    RunFolders,
    local_row,
    row_of,
    stored_row,
    unreadable_folder,
    unreadable_row,
)
from trainrun_operator.cli.viewing.rows import NO_END, RunRow, main_metric
from trainrun_operator.cli.viewing.storages import Storages, UsersStorages, folder
from trainrun_operator.cli.viewing.sweep_rows import trial_row
from trainrun_operator.core.sweep.config import TRIALS
from trainrun_operator.worlds.local.place import places_root

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.user_watch import UserWatch

LOOK = 0.5
"""Seconds between two looks at the runs of this machine."""
BROWSE = 30.0
"""Seconds between two looks at what a storage holds, and at a folder without an end."""
PAUSE = 2.0
"""Seconds between two looks at what is due, and after a storage failed."""
ENDED = 600.0
"""Seconds after which the folder of an ended run is read again: it may have been continued."""
READERS = 16
"""Folders of one storage read at once."""
SPARK, SPARK_PIECES = 30, 6
"""Points of a small curve; pieces of metrics that are read for it."""
QUIET = 75.0
"""Seconds without news after which a cluster is silent: its bookmarks come once a minute."""

_TRIAL = re.compile(r"\d{5,9}(-i\d{1,9})?")
"""Folder of a trial."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RunCatalog:
    """Rows by id."""

    storages: tuple[str, ...]
    """URIs whose folders are runs, or may be."""
    watch: UserWatch | None = None
    """None: without a cluster."""
    access: Storages = field(default_factory=UsersStorages)
    """What may be read."""
    rows: dict[str, RunRow] = field(default_factory=dict)
    changes: int = 0
    """Grows with each change of a row or of a curve."""
    _browsed: set[str] = field(default_factory=set)
    """Storages that were browsed once."""
    _waiting: dict[str, float] = field(default_factory=dict)
    """Storages that are being read, and when the newest answer came, or else the wait began."""
    _curves: dict[str, Downsampled] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    """Runs whose small curve was looked for in their storage."""
    _read: dict[str, float] = field(default_factory=dict)
    """When the folder of a run was last read, by its URI."""
    _troubles: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Storages that cannot be read now: why, and since when."""
    _deleted: dict[str, str] = field(default_factory=dict)
    """Ids of the rows of folders, by those that their TrainRuns had."""
    _pools: defaultdict[str, ThreadPoolExecutor] = field(
        default_factory=lambda: defaultdict(lambda: ThreadPoolExecutor(READERS))
    )
    """By storage, that one which hangs holds up no other; empty: of all that are not ours."""

    async def run(self) -> None:
        """Keep all rows up to date, forever."""
        async with asyncio.TaskGroup() as tasks:
            if not self.access.only_bound:
                tasks.create_task(self._look())
            for uri in (*self.storages, ""):
                tasks.create_task(self._browse(uri))
            if self.watch is not None:
                # Only rows are kept in memory, no objects.
                follow = self.watch.follow(
                    project=lambda version: self.access.opened(row_of(version)),
                    unreadable=lambda run: self.access.opened(unreadable_row(run)),
                    key=lambda row: row.id,
                    on_change=self._changed,
                )
                tasks.create_task(follow)

    # ------------------------------------------------------------------------------- reading

    def namespaces(self) -> set[str]:
        """Those that there are rows of; an empty one: of no cluster."""
        return {row.namespace for row in self.rows.values()} | self.access.namespaces()

    def shown(self, seen: VisibleNamespaces) -> list[RunRow]:
        """The rows in the namespaces `seen`, each run once."""
        hidden = self._known()
        return [
            row
            for row in self.rows.values()
            if seen.has(row) and (row.kind != "stored" or row.uri not in hidden)
        ]

    def find(self, row_id: str, seen: VisibleNamespaces) -> RunRow | None:
        """The row with this id, that of the folder of a TrainRun that had it and was deleted, or of
        a trial of a sweep."""
        folder_id = self._deleted.get(row_id, "")
        row = self.rows.get(row_id) or self.rows.get(folder_id) or self._trial(row_id, seen)
        return row if row is not None and seen.has(row) else None

    def current(self, row: RunRow) -> RunRow:
        """The newest version of this row; of a deleted TrainRun, the row of its folder."""
        now = self.rows.get(row.id)
        if now is not None and now.uid == row.uid:
            return now
        return row if row.source.closed else self.rows.get(f"stored:{row.uri}", row)

    def _trial(self, row_id: str, seen: VisibleNamespaces) -> RunRow | None:
        """The row of a trial of a sweep that is shown, by the URI of its folder."""
        at, _, name = row_id.removeprefix("stored:").rpartition("/")
        found = (
            row
            for row in self.rows.values()
            if row.sweep and seen.has(row) and not row.source.closed and f"{row.uri}/{TRIALS}" == at
        )
        sweep = next(found, None)
        if sweep is None or not _TRIAL.fullmatch(name):
            return None
        return trial_row(sweep, name)

    @property
    def loading(self) -> bool:
        """More runs may be there than were read yet."""
        browsed = self._browsed.issuperset(self.storages)
        return not browsed or (self.watch is not None and not self.watch.listed)

    def _known(self) -> set[str]:
        """URIs of the folders of runs of which more is known than their folder."""
        rows = self.rows.values()
        return {row.uri for row in rows if row.kind != "stored" and not row.source.closed}

    def troubles(self, seen: VisibleNamespaces) -> Iterator[str]:
        """What cannot be read now of these namespaces, and how old its data is."""
        ages = list[tuple[float, str]]()
        for (kind, _), informer in () if self.watch is None else self.watch.informers.items():
            why, age = informer.listing.trouble, informer.silent_for()
            if why and self.access.only_bound:  # it may name a namespace of others
                why = "the page's log says why"
            if why and not informer.synced.is_set():
                yield f"The {kind}s of the cluster cannot be read: {why}."
            elif why or age > QUIET:
                ages.append((age, f" ({why})" if why else ""))
        if ages:
            age, more = max(ages)
            yield f"The cluster does not answer: its data is {age:.0f} s old{more}."
        now = time.monotonic()
        for uri, (why, since) in self._troubles.items():
            if self.access.namespace_of(uri) in seen.runs:
                yield f"{uri} cannot be read: its data is {now - since:.0f} s old ({why})."
        for uri, since in self._waiting.items():
            told = uri in self._troubles or now - since < QUIET
            if not told and self.access.namespace_of(uri) in seen.runs:
                yield f"{uri} does not answer: its data is {now - since:.0f} s old."

    def spark(self, row: RunRow) -> list[Point]:
        """The points of its small curve, as far as they are known; asks for older ones."""
        if row.id not in self._asked and not row.sweep:
            self._asked.add(row.id)
            loop = asyncio.get_running_loop()
            pool = self._pools[self._storage_of(row.source)]
            loop.run_in_executor(pool, self._read_curve, row, loop)
        curve = self._curves.get(row.id)
        return [] if curve is None else curve.points

    # ------------------------------------------------------------------------------- changes

    def put(self, row: RunRow) -> None:
        """Show this version of a run."""
        before = self.rows.get(row.id)
        self.rows[row.id] = row
        self.changes += before != row
        if before is not None and before.uid != row.uid:
            self._forget_curve(row.id)
            before = None
        metric = main_metric(row.metrics)
        if metric is not None and (before is None or before.at_step != row.at_step):
            curve = self._curves.setdefault(row.id, Downsampled(most=SPARK))
            curve.add(row.at_step, metric[1])

    def _changed(self, before: RunRow | None, after: RunRow | None) -> None:
        if after is not None:
            self.put(after)
        elif before is not None:
            self._forget(before)

    def _forget(self, row: RunRow) -> None:
        """Its TrainRun is gone; its folder stays."""
        self.rows.pop(row.id, None)
        self.changes += 1
        self._forget_curve(row.id)
        if row.source.closed or not row.source.storage:
            return
        phase = NO_END if row.active else row.phase
        namespace = self.access.namespace_of(row.source.storage)
        self._read.pop(row.uri, None)
        self._deleted[row.id] = f"stored:{row.uri}"
        self.put(replace(row, kind="stored", namespace=namespace, phase=phase, active=False))

    def _forget_curve(self, row_id: str) -> None:
        """Another run of this name has another curve."""
        self._curves.pop(row_id, None)
        self._asked.discard(row_id)

    # ------------------------------------------------------------------------------- this machine

    async def _look(self) -> None:
        while True:
            within = {row.source.storage for row in self.rows.values() if row.source.within}
            for uri in {*self.storages, *within}:
                for row in await asyncio.to_thread(self._local_rows, uri, dict(self.rows)):
                    self.put(row)
            await asyncio.sleep(LOOK)

    def _local_rows(self, uri: str, rows: dict[str, RunRow]) -> list[RunRow]:
        """The runs whose files on this machine have changed."""
        paths = list[Path]()
        found = []
        with contextlib.suppress(OSError):  # there is none, or it is not ours
            paths = sorted(places_root(uri, environ=os.environ).iterdir())
        for path in paths:
            with contextlib.suppress(TrainRunError, OSError):
                row = local_row(folder(self.access, uri, path.name), rows)
                found += [] if row is None else [row]
        return found

    # ------------------------------------------------------------------------------- storages

    async def _browse(self, uri: str) -> None:
        """Keep the rows of this storage up to date; empty: of those that are not ours."""
        listed, folders = -math.inf, RunFolders(uri=uri, access=self.access, pool=self._pools[uri])
        while True:
            if uri:
                self._waiting[uri] = time.monotonic()
            if uri and time.monotonic() - listed > BROWSE:
                try:
                    await self._list(folders)
                    listed = time.monotonic()
                    self._troubles.pop(uri, None)
                except (TrainRunError, OSError) as error:  # again soon
                    self._fails(uri, error)
                    listed = -math.inf
            others = [
                row.source
                for row in self.rows.values()
                if row.kind == "stored"
                and row.source.storage not in self.storages
                and self._storage_of(row.source) == uri
            ]
            known, found = self._known(), folders.found if listed > 0 else ()
            sources = {source.uri: source for source in (*others, *found)}.values()
            await asyncio.gather(*(self._refresh(s) for s in sources if self._is_due(s, known)))
            self._waiting.pop(uri, None)
            self._browsed.add(uri)
            await asyncio.sleep(PAUSE)

    async def _list(self, folders: RunFolders) -> None:
        """Look for runs in a storage; forgets the rows of those that are gone. Raises
        StoreError."""
        before = {row.uri: row for row in self.rows.values() if row.kind == "stored"}
        listed = {source.uri for source in folders.found}
        await folders.find(self._known() | before.keys())
        there = {source.uri for source in folders.found}
        for row in before.values():
            top = layout.run_uri(folders.uri, row.source.name)
            if (row.uri in listed or row.uri == top) and row.uri not in there:
                self._drop(row)

    def _drop(self, row: RunRow) -> None:
        """Its folder is gone, too."""
        self.rows.pop(row.id, None)
        self.changes += 1
        self._forget_curve(row.id)
        self._read.pop(row.uri, None)
        self._deleted = {old: new for old, new in self._deleted.items() if new != row.id}

    def _storage_of(self, source: Source) -> str:
        """The storage of ours through which it is read; empty: none."""
        uri = source.storage if source.store is None else source.store.uri
        return uri if uri in self.storages else ""

    async def _refresh(self, source: Source) -> None:
        loop, namespace = asyncio.get_running_loop(), self.access.namespace_of(source.storage)
        at = self._storage_of(source)
        before = self.rows.get(f"stored:{source.uri}")
        self._read[source.uri] = time.monotonic()
        try:
            pool = self._pools[at]
            row = await loop.run_in_executor(pool, stored_row, source, before, namespace)
        except ObjectTooLarge as error:
            self.put(unreadable_folder(source, before, namespace, str(error)))
        except (TrainRunError, OSError) as error:
            self._fails(source.storage, error)
        except Exception as error:  # noqa: BLE001 - whatever is in a folder, the page goes on
            self.put(unreadable_folder(source, before, namespace, repr(error)))
        else:
            if at in self._waiting:
                self._waiting[at] = time.monotonic()
            if source.storage not in self.storages:
                self._troubles.pop(source.storage, None)
            if row is not None and row != before:
                self.put(row)

    def _fails(self, uri: str, error: Exception) -> None:
        _, since = self._troubles.get(uri, ("", time.monotonic()))
        self._troubles[uri] = (str(error), since)

    def _is_due(self, source: Source, known: set[str]) -> bool:
        row, read = self.rows.get(f"stored:{source.uri}"), self._read.get(source.uri)
        over = row is not None and not row.active and row.phase != NO_END
        pause = ENDED if over else BROWSE
        return source.uri not in known and (read is None or time.monotonic() - read > pause)

    def _read_curve(self, row: RunRow, loop: asyncio.AbstractEventLoop) -> None:
        try:
            run = generations(row.source.checkpoints())[-1]
            numbers = [*reported_numbers(read_metrics(run, most=SPARK_PIECES))]
        except (TrainRunError, OSError) as error:
            _log.info("%s has no curve: %s", row.id, error)
            loop.call_soon_threadsafe(loop.call_later, BROWSE, self._asked.discard, row.id)
            return
        loop.call_soon_threadsafe(self._older, row.id, numbers)

    def _older(self, row_id: str, numbers: list[tuple[int, int, str, float]]) -> None:
        """Draw these numbers, then what was seen since."""
        chosen = main_metric({name: 1.0 for _, _, name, _ in numbers})
        curve = Downsampled(most=SPARK)
        for _, step, name, value in numbers:
            if chosen is not None and name == chosen[0]:
                curve.add(step, value)
        last = curve.points[-1][0] if curve.points else -1
        newer = self._curves.get(row_id)
        for step, value in () if newer is None else newer.points:
            if step > last:
                curve.add(step, value)
        self._curves[row_id] = curve
        self.changes += 1
