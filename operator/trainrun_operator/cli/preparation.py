"""Checks a local run's input before anything starts, and opens its status file: new, to be
continued, or finished.

Layer: cli. All bad input is found here, before a process starts or a file is written. The storage
alone decides which checkpoints are good; the status file next to it remembers budgets and
incidents. If the run's folder was removed from a file storage, the status file is stale and
dropped.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from trainrun.errors import InvalidSpec
from trainrun_operator.api.loading import kinds_in, load_trainrun
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.api.run.launching import TEMPLATE, folder_problem, launching_of
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.cli import formatting
from trainrun_operator.cli.leading import RunOptions
from trainrun_operator.core.run.config import config_of
from trainrun_operator.core.run.stages.inactive import raised
from trainrun_operator.worlds.local.faults import Fault, parse_fault
from trainrun_operator.worlds.local.place import RunPlace, StatusFile, StoredRun, place_of
from trainrun_operator.worlds.local.program import (
    Program,
    gpus_here,
    program_of,
    split_gpus,
    with_interpreter,
)

NOTHING: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A run that can be started."""

    run: TrainRun
    name: str
    """storage.runName, else metadata.name: the run's folder in its storage."""
    place: RunPlace
    program: Program
    processes_per_worker: int
    gpus: tuple[tuple[int, ...], ...]
    """Indices of the GPUs of each slot."""
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]
    """Parts of the file that this machine ignores, one sentence each."""
    metrics_interval: float = 30.0
    """Seconds between two metrics objects in the storage."""


def prepare(options: RunOptions) -> Preparation:
    """Read and check everything. Raises InvalidSpec."""
    run = load_file(options.file, replicas=options.replicas, storage=options.storage)
    return preparation_of(run, file=options.file, faults=options.faults)


def preparation_of(
    run: TrainRun, *, file: Path, faults: tuple[str, ...] = (), varying: Collection[str] = ()
) -> Preparation:
    """Check a run that was read from `file`; `varying` as for `program_of`. Raises InvalidSpec."""
    name = run.run_name
    workers = run.spec.workers
    launching = launching_of(workers)
    if problem := launching.problem or folder_problem(run.spec.checkpoint.folder, workers):
        raise InvalidSpec(f"{file}: spec.{TEMPLATE}: {problem}")
    script_folder = run.spec.checkpoint.folder
    if script_folder is not None and script_folder.carry and workers.replicas > 1:
        raise InvalidSpec(
            f"{file}: all workers of this machine see one folder. Set "
            "spec.checkpoint.folder.carry: false, or workers.replicas: 1"
        )
    world_size = workers.replicas * launching.processes
    wanted = tuple(parse_fault(text, world_size=world_size) for text in faults)
    program = program_of(
        workers.template.as_dict(),
        folder=file.resolve().parent,
        environ=with_interpreter(os.environ),
        varying=varying,
    )
    here = gpus_here(os.environ)
    gpus = split_gpus(here, workers=workers.replicas, per_worker=program.gpus_per_worker)
    notes = (*program.notes, *filter(None, [launching.note]))
    if program.gpus_per_worker and not here:
        notes += ("this machine has no GPU, so the template's GPU request is ignored",)
    if run.spec.storage.credentials_secret_ref is not None:
        notes += ("storage.credentialsSecretRef is ignored: credentials come from the environment",)
    return Preparation(
        run=run,
        name=name,
        place=place_of(run.spec.storage.uri, name, environ=os.environ),
        program=program,
        processes_per_worker=launching.processes,
        gpus=tuple(tuple(share) for share in gpus),
        faults=wanted,
        notes=notes,
    )


def load_file(
    file: Path,
    *,
    replicas: int | None = None,
    storage: str | None = None,
    overrides: Mapping[str, object] = NOTHING,
) -> TrainRun:
    """The TrainRun in this file, with the command line's changes and with `overrides`, values by
    path: `{"spec.suspend": False}`. Raises InvalidSpec."""
    text = read_file(file)
    changes = dict(overrides)
    if replicas is not None:
        changes["spec.workers.replicas"] = replicas
    if storage is not None:
        changes["spec.storage.uri"] = storage_uri(storage)
    return load_trainrun(text, source=str(file), overrides=changes)


def read_file(file: Path) -> str:
    """The file's text, line breaks unchanged. Raises InvalidSpec."""
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise InvalidSpec(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSpec(f"{file}: is not UTF-8 text ({error.reason})") from error


def holds_sweep(file: Path) -> bool:
    """Whether this file holds a TrainSweep; False also if it cannot be read."""
    try:
        # Only the kind is read: importing the sweep models takes 30 ms.
        return "TrainSweep" in kinds_in(read_file(file))
    except InvalidSpec:
        return False


def storage_uri(text: str) -> str:
    """`text` if it is a URI; anything else is a folder, as a file:// URI."""
    return text if "://" in text else Path(text).resolve().as_uri()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A run with its status file: to be led, or finished."""

    stored: StoredRun
    remark: str = ""
    """What to print before it continues; empty: nothing."""


def open_run(prepared: Preparation) -> Opened:
    """Read or create the run's status file. Raises StatusUnreadable and StatusConflict."""
    file = StatusFile(prepared.place.status)
    spec = prepared.run.to_json_object()
    stored = file.read()
    if stored is None:
        return Opened(stored=file.create(spec))
    folder = _run_folder(prepared)
    if folder is not None and stored.status.attempt > 0 and not folder.exists():
        file.path.unlink()
        remark = f"{folder} no longer exists; starting from scratch"
        return Opened(stored=file.create(spec), remark=remark)
    if stored.status.is_true("Complete"):
        if prepared.run.spec.storage.on_existing != "StartFresh":
            return Opened(stored=stored)
        # A new TrainRun from this file, as after deleting and applying it in a cluster.
        file.path.unlink()
        return Opened(stored=file.create(spec), remark=_fresh_start_remark(stored.status))
    if stored.spec != spec:
        stored = replace(stored, spec=spec, generation=stored.generation + 1)
    why = raised(stored.status, config_of(prepared.run), generation=stored.generation)
    remark = _remark(stored.status, why=why)
    if stored.status.is_true("Failed") and not why:
        # Budgets and history belong to the run that failed and start again. Attempt numbers
        # continue, and the committed checkpoint stays recorded: a store that lacks it is not new.
        old = stored.status
        fresh = TrainRunStatus(
            attempt=old.attempt,
            checkpoint=old.checkpoint,
            storage_generation=old.storage_generation,
            run_id=old.run_id,
            chapters=old.chapters,
            story=old.story,
            spent=old.spent,
        )
        stored = replace(stored, status=fresh)
    return Opened(stored=file.replace(stored), remark=remark)


def _run_folder(prepared: Preparation) -> Path | None:
    parts = urlsplit(prepared.run.spec.storage.uri)
    return Path(unquote(parts.path)) / prepared.name if parts.scheme == "file" else None


def _fresh_start_remark(status: TrainRunStatus) -> str:
    last = status.checkpoint
    saved = f"; its checkpoints stay, the last one is {last.uri}" if last else ""
    return f"the run succeeded before{saved}. A new one starts from scratch (onExisting)"


def _remark(status: TrainRunStatus, *, why: str) -> str:
    point = " from its newest good checkpoint" if formatting.has_checkpoint(status) else ""
    failed = status.condition("Failed")
    if failed is not None and failed.status == "True":
        how = "with fresh budgets"
        if why:
            how = f"with the budgets already used, since {why}"
        return f"the run failed before ({failed.reason}); it continues{point} {how}"
    if status.attempt == 0:
        return ""
    return f"continuing after attempt {status.attempt}{point}"


def finished_message(prepared: Preparation, status: TrainRunStatus) -> str:
    """The message for a run that succeeded before."""
    saved = f"; its last checkpoint is {status.checkpoint.uri}" if status.checkpoint else ""
    return (
        f"run {prepared.name} has already succeeded (step {formatting.step_of(status)}{saved}). To "
        "train again set storage.onExisting: StartFresh, or use another storage.runName or storage"
    )
