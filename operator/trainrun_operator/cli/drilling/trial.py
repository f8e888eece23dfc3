"""One run of a drill, from fresh storage to what was seen of it.

Layer: cli. The storage is removed when it has been read.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.checkpoint import list_checkpoints, read_metrics
from trainrun.contract.metrics import decode
from trainrun_operator.cli.drilling.course import Course, Ending, Point
from trainrun_operator.cli.drilling.ground import prepare_drill
from trainrun_operator.cli.drilling.watching import Watcher
from trainrun_operator.cli.explaining.life import life_of
from trainrun_operator.cli.local_run import LocalRun
from trainrun_operator.cli.opening import open_run
from trainrun_operator.cli.sources import LocalSource, StorageSource
from trainrun_operator.runtime.news import Everyone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainrun.checkpoint import RunStore
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.cli.preparation import Preparation
    from trainrun_operator.worlds.local.faults import Fault

ENDING = 20.0
"""Seconds that a run may take to end once it is told to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all runs of a drill have in common."""

    file: Path
    replicas: int | None
    folder: Path
    """For the storage of one run at a time."""

    def try_run(self, *, fault: Fault | None, until: int | None, seconds: float) -> Course:
        """Run until a step, at most so long. Raises InvalidSpec, StoreError, KeyboardInterrupt."""
        folder = self.folder / "run"
        folder.mkdir()
        try:
            prepared = prepare_drill(self.file, replicas=self.replicas, folder=folder, fault=fault)
            return _run(prepared, until=until, seconds=seconds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _run(prepared: Preparation, *, until: int | None, seconds: float) -> Course:
    prepared.place.folder.parent.mkdir(exist_ok=True)
    watcher = Watcher(
        until=until,
        attempt=2 if prepared.faults else 1,
        ready=lambda: not run.never_struck,
        enough=lambda: run.end(),  # noqa: PLW0108 - there is no run yet
    )
    run = LocalRun(
        prepared,
        open_run(prepared).stored,
        events=Everyone([]),
        heard=watcher.hear,
        save_on_interrupt=False,
    )
    begun = time.monotonic()
    status = asyncio.run(_bounded(run, seconds))
    if run.interrupted:
        raise KeyboardInterrupt
    return _seen(prepared, run, watcher, status, seconds=time.monotonic() - begun)


async def _bounded(run: LocalRun, seconds: float) -> TrainRunStatus:
    leading = asyncio.create_task(run.lead(say=lambda _text: None))
    for limit, then in ((seconds, run.end), (ENDING, run.abandon)):
        done, _ = await asyncio.wait({leading}, timeout=limit)
        if done:
            break
        then()
    return await leading


def _seen(
    prepared: Preparation,
    run: LocalRun,
    watcher: Watcher,
    status: TrainRunStatus,
    *,
    seconds: float,
) -> Course:
    workers = prepared.run.spec.workers
    stored = StorageSource(
        name=prepared.name, storage=prepared.run.spec.storage.uri, place=prepared.place
    )
    store = stored.checkpoints()
    ours = (it for it in list_checkpoints(store) if it.id.attempt == 1)
    # One that a later attempt has fenced was not committed; an incomplete one never will be.
    listed = {info.id.step for info in ours if info.state == "good"}
    failed = status.condition("Failed") if status.is_true("Failed") else None
    return Course(
        ending=_ending(status, watcher),
        world_size=workers.replicas * prepared.processes_per_worker,
        seconds=seconds,
        points=tuple(_points(store)),
        chapters=life_of(LocalSource(stored=stored)).ran,
        committed=tuple(sorted(watcher.committed | listed)),
        reported={attempt: dict(told) for attempt, told in watcher.reported.items()},
        asked=frozenset(watcher.asked),
        opened=frozenset(watcher.opened),
        parts=tuple(sorted(watcher.parts)),
        struck=bool(prepared.faults) and not run.never_struck,
        failure=failed.message if failed is not None else "",
    )


def _ending(status: TrainRunStatus, watcher: Watcher) -> Ending:
    if status.is_true("Failed"):
        return "Failed"
    if status.is_true("Complete"):
        return "Succeeded"
    return "Stopped" if watcher.reached_it else "OutOfTime"


def _points(store: RunStore) -> Iterator[Point]:
    for record in read_metrics(store):
        if record.get("rank") == 0:
            metrics = decode(record["metrics"])
            yield Point(attempt=record["attempt"], step=record["step"], metrics=metrics)
