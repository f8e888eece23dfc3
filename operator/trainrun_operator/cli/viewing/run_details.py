"""Everything that the page of one run shows, kept up to date while somebody looks at it.

Layer: cli. The newest step comes from the status at once; what is in the storage, the pods and the
output are read again every few seconds, each in its own time, so that a slow one delays no other.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trainrun.checkpoint.logs import RankLog, read_logs
from trainrun_operator.cli.explaining.life import Extras, ExtrasReader, Life, life_of
from trainrun_operator.cli.finding import cluster_source
from trainrun_operator.cli.log_lines.history import stored_slots
from trainrun_operator.cli.log_lines.line import WorkerOutput
from trainrun_operator.cli.sources import ClusterSource, RunState, Source, generation_of
from trainrun_operator.cli.viewing.catalog import RunCatalog
from trainrun_operator.cli.viewing.rows import NO_END, RunRow
from trainrun_operator.worlds.local.worker import OUTPUT_FILE

if TYPE_CHECKING:
    from trainrun_operator.worlds.kubernetes.pod_logs import WorkerPod

T = TypeVar("T")

LOOK, READ, LINES, PODS = 0.3, 10.0, 3.0, 30.0
"""Seconds between two looks at the status, the storage, the output, and the pods."""
UNUSED = 30.0
"""Seconds after which nobody looks at it any more."""
MOST_NEWER = 600
"""Steps kept that the storage may not have yet."""
TAIL, TAIL_BYTES = 60, 1 << 16
"""Lines that are shown of one rank, and bytes that are read for them."""

_WORKER = re.compile(r".*-(\d+)-(\d+)")


@dataclass(slots=True, kw_only=True)
class RunDetails:
    """What is known of one run."""

    catalog: RunCatalog
    row: RunRow
    rank: int | None
    """Whose lines are shown; None: no lines and no pods are read."""
    state: RunState | None = None
    life: Life | None = None
    extras: Extras = field(default_factory=Extras)
    reader: ExtrasReader = field(default_factory=ExtrasReader)
    newer: deque[dict[str, object]] = field(default_factory=lambda: deque(maxlen=MOST_NEWER))
    lines: tuple[str, ...] = ()
    pods: tuple[WorkerPod, ...] = ()
    per_worker: int = 1
    troubles: dict[str, str] = field(default_factory=dict)
    """What could not be read the last time, and why."""
    asked: float = field(default_factory=time.monotonic)
    changes: int = 0
    """Grows with each."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once everything was read."""
    _source: Source | None = None
    _done: set[str] = field(default_factory=set)
    """Jobs that were done at least once."""

    @property
    def spec(self) -> Mapping[str, object]:
        """Its spec; empty: only its story is known."""
        return {} if self.state is None else self.state.spec

    def without(self, hidden: Collection[str]) -> RunDetails:
        """What somebody sees from whom these kinds of data are hidden: `pods`, `pods/log`."""
        shown, told = self, dict(self.troubles)
        if "pods" in hidden:
            told.pop(self._read_pods.__name__, None)
            shown = replace(shown, pods=())
        if "pods/log" in hidden:
            told.pop(self._read_lines.__name__, None)
            shown = replace(shown, lines=(), extras=replace(self.extras, logs={}))
        return replace(shown, troubles=told) if hidden else self

    async def run(self) -> None:
        """Keep it up to date until nobody asks any more."""
        await self._look()
        jobs: dict[Callable[[], Awaitable[None]], float] = {self._read: READ}
        if self.rank is not None:
            jobs |= {self._read_lines: LINES, self._read_pods: PODS}
        reads = [asyncio.create_task(self._repeat(*job, of=len(jobs))) for job in jobs.items()]
        try:
            while time.monotonic() - self.asked < UNUSED:
                await self._look()
                await asyncio.sleep(LOOK)
        finally:
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)

    async def _repeat(self, job: Callable[[], Awaitable[None]], pause: float, *, of: int) -> None:
        """Do the job now, at each turn of the run, and after each pause while it is active."""
        while True:
            row, begun = self.row, time.monotonic()
            await self._guarded(job)
            self.changes += 1
            self._done.add(job.__name__)
            if len(self._done) == of:
                self.ready.set()
            while (row.attempt, row.active) == (self.row.attempt, self.row.active) and not (
                (row.active or row.phase == NO_END) and time.monotonic() - begun > pause
            ):
                await asyncio.sleep(LOOK)

    async def _guarded(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except Exception as error:  # noqa: BLE001 - whatever it has told, the page goes on
            self.troubles[job.__name__] = str(error) or type(error).__name__
        else:
            self.troubles.pop(job.__name__, None)

    async def _look(self) -> None:
        """Read its status, if there is another."""
        row = self.catalog.current(self.row)
        if self._source is not None and row == self.row:
            return
        self.row = row
        await self._guarded(self._read_state)
        self.changes += 1
        if row.at_step >= 0:
            self.newer.append(row.record)

    async def _read_state(self) -> None:
        row, watch = self.row, self.catalog.watch
        self._source = row.source
        if row.kind == "cluster" and watch is not None:
            source, known = cluster_source(await watch.read(row.namespace, row.name)), row.source
            self._source = replace(
                source, store=known.store, within=known.within, closed=known.closed
            )
            self.per_worker = source.per_worker
        if row.kind == "stored":
            self.state = None
        else:
            self.state = await asyncio.to_thread(self._source.known_state)
            record = None if self.state is None else self.state.status.start_record
            if record is not None and record.roster and row.kind == "local":
                self.per_worker = max(record.world_size // len(record.roster), 1)

    async def _read(self) -> None:
        assert self._source is not None
        source = self._source
        self.life = await asyncio.to_thread(life_of, source)
        lines = self.rank is not None
        self.extras = await asyncio.to_thread(self.reader.read, source, self.life, lines=lines)

    # ------------------------------------------------------------------------------- output

    async def _read_lines(self) -> None:
        assert self._source is not None
        assert self.rank is not None
        slot, watch, source = self.rank // self.per_worker, self.catalog.watch, self._source
        if self.row.active and isinstance(source, ClusterSource) and watch is not None:
            if not self.pods:
                await self._read_pods()
            pod = next((pod for pod in self.pods if pod.slot == slot), None)
            told = [] if pod is None else await watch.lines(pod, tail=TAIL * self.per_worker)
            self.lines = self._of_rank(told)
        elif self.row.active:
            self.lines = self._of_rank(await asyncio.to_thread(_local_lines, source, slot))
        else:
            self.lines = await asyncio.to_thread(self._stored_lines, source, slot)

    def _of_rank(self, texts: Iterable[str]) -> tuple[str, ...]:
        output = WorkerOutput(worker="")
        lines = [line for line in map(output.line, texts) if line is not None]
        return tuple(line.text for line in lines if line.rank == self.rank)[-TAIL:]

    def _stored_lines(self, source: Source, slot: int) -> tuple[str, ...]:
        run = generation_of(source, None)
        attempts = (attempt for attempt, slots in stored_slots(run).items() if slot in slots)
        newest = max(attempts, default=0)
        found: list[RankLog] = []
        for log in read_logs(run, [(newest, slot)] if newest else []):
            found += [] if log is None else log.ranks
        lines = (line.text for log in found if log.rank == self.rank for line in log.lines)
        return tuple(lines)[-TAIL:]

    async def _read_pods(self) -> None:
        watch, state = self.catalog.watch, self.state
        if self.row.kind == "cluster" and watch is not None and state is not None:
            self.pods = tuple(await watch.pods(self.row.namespace, state.uid))


def _local_lines(source: Source, slot: int) -> list[str]:
    """The last lines of the newest worker of this slot on this machine."""
    files: list[tuple[int, Path]] = []
    for file in source.place.nodes.glob(f"*/{OUTPUT_FILE}"):
        place = _WORKER.fullmatch(file.parent.name)
        if place is not None and int(place[1]) == slot:
            files.append((int(place[2]), file))
    if not files:
        return []
    with max(files)[1].open("rb") as output:
        output.seek(max(os.fstat(output.fileno()).st_size - TAIL_BYTES, 0))
        return output.read().decode(errors="replace").splitlines()
