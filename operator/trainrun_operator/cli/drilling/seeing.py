"""What is left of a run of a drill, put together before its storage is removed.

Layer: cli; reads the run's storage and status.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun.checkpoint.inspection import list_checkpoints
from trainrun.checkpoint.metrics_log import read_metrics
from trainrun.checkpoint.reader import read_manifest
from trainrun.contract.metrics import decode
from trainrun.errors import TrainRunError
from trainrun_operator.cli.drilling.course import Course, Ending, Noticed, Point
from trainrun_operator.cli.drilling.reading.stored import read_files
from trainrun_operator.cli.explaining.life import life_of
from trainrun_operator.cli.sources import LocalSource, StorageSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainrun.checkpoint.inspection import CheckpointInfo
    from trainrun.checkpoint.records import Manifest
    from trainrun.checkpoint.run_store import RunStore
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.cli.drilling.watching import Watcher
    from trainrun_operator.cli.preparation import Preparation
    from trainrun_operator.cli.sources import Source


def seen(
    prepared: Preparation,
    status: TrainRunStatus,
    watcher: Watcher,
    *,
    struck: bool,
    spoilt: int | None,
    seconds: float,
) -> Course:
    """All of it, of a run on this machine. Raises StoreError."""
    workers = prepared.run.spec.workers
    stored = StorageSource(
        name=prepared.name, storage=prepared.run.spec.storage.uri, place=prepared.place
    )
    heard = Course(
        ending=ending(status, reached_it=watcher.reached_it),
        world_size=workers.replicas * prepared.processes_per_worker,
        seconds=seconds,
        committed=tuple(sorted(watcher.committed)),
        reported={attempt: dict(told) for attempt, told in watcher.reported.items()},
        sought=frozenset(watcher.sought),
        asked=frozenset(watcher.asked),
        commit_gap=watcher.commit_gap,
        ask_gap=watcher.ask_gap,
        longest_step=watcher.longest_step,
        opened=frozenset(watcher.opened),
        parts=tuple(sorted(watcher.parts)),
        struck=struck,
        noticed=watcher.noticed(prepared.faults[0].step) if prepared.faults else Noticed(),
        spoilt=spoilt,
        failure=failure(status),
    )
    return with_stored(heard, LocalSource(stored=stored))


def with_stored(course: Course, source: Source) -> Course:
    """With what its storage tells, and its story. Raises StoreError."""
    store = source.checkpoints()
    # One that a later attempt has fenced was not committed; an incomplete one never will be.
    good = [info for info in list_checkpoints(store) if info.state == "good"]
    manifests = list(_manifests(store, good))
    first = {info.id.step for info in good if info.id.attempt == 1}
    return replace(
        course,
        points=tuple(_points(store)),
        chapters=life_of(source).ran,
        committed=tuple(sorted({*course.committed, *first})),
        contents={(it.attempt, it.step): read_files(store, it) for it in manifests},
        savers=tuple(sorted({r for it in manifests for file in it.files for r in file.ranks})),
    )


def failure(status: TrainRunStatus) -> str:
    """Why it failed; empty where it did not."""
    failed = status.condition("Failed") if status.is_true("Failed") else None
    return failed.message if failed is not None else ""


def _manifests(store: RunStore, good: list[CheckpointInfo]) -> Iterator[Manifest]:
    for info in good:
        try:
            yield read_manifest(store, info.id)
        except TrainRunError:
            continue  # complete, and not committed yet


def ending(status: TrainRunStatus, *, reached_it: bool) -> Ending:
    """How it ended; `reached_it`: it was stopped since it had got far enough."""
    if status.is_true("Failed"):
        return "Failed"
    if status.is_true("Complete"):
        return "Succeeded"
    return "Stopped" if reached_it else "OutOfTime"


def _points(store: RunStore) -> Iterator[Point]:
    for record in read_metrics(store):
        if record.get("rank") == 0:
            metrics = decode(record["metrics"])
            yield Point(attempt=record["attempt"], step=record["step"], metrics=metrics)
