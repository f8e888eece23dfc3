"""Everything that is checked and put together before a local run starts anything.

Layer: cli. All bad input is found here, before a process is started or a file is written.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainrun.errors import InvalidSpec
from trainrun_operator.api.loading import kinds_in, load_trainrun
from trainrun_operator.api.resources import TrainRun
from trainrun_operator.api.run.launching import TEMPLATE, launching_of
from trainrun_operator.worlds.local.faults import Fault, parse_fault
from trainrun_operator.worlds.local.place import RunPlace, place_of
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
    """For each slot."""
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]
    """What of the file has no meaning on this machine."""
    metrics_interval: float = 30.0
    """Seconds between two pieces of metrics in the storage."""


def prepare(
    file: Path,
    *,
    replicas: int | None,
    storage: str | None,
    faults: tuple[str, ...],
    overrides: Mapping[str, object] = NOTHING,
) -> Preparation:
    """Read and check everything; `overrides` as for `load_file`. Raises InvalidSpec."""
    run = load_file(file, replicas=replicas, storage=storage, overrides=overrides)
    return preparation_of(run, file=file, faults=faults)


def preparation_of(
    run: TrainRun, *, file: Path, faults: tuple[str, ...] = (), varying: Collection[str] = ()
) -> Preparation:
    """Check a run that was read from this file; `varying` as for `program_of`. Raises
    InvalidSpec."""
    name = run.run_name
    workers = run.spec.workers
    launching = launching_of(workers)
    if launching.problem:
        raise InvalidSpec(f"{file}: spec.{TEMPLATE}: {launching.problem}")
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
        notes += ("this machine has no GPU: the template's GPU request is ignored",)
    if run.spec.storage.credentials_secret_ref is not None:
        notes += ("storage.credentialsSecretRef is ignored: this machine's environment has them",)
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
    """The TrainRun in this file with the command line's changes, and with `overrides`, which are
    values by path: `{"spec.suspend": False}`. Raises InvalidSpec."""
    text = read_file(file)
    changes = dict(overrides)
    if replicas is not None:
        changes["spec.workers.replicas"] = replicas
    if storage is not None:
        changes["spec.storage.uri"] = storage_uri(storage)
    return load_trainrun(text, source=str(file), overrides=changes)


def read_file(file: Path) -> str:
    """Its text, with its own line breaks. Raises InvalidSpec."""
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise InvalidSpec(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidSpec(f"{file}: is no text in UTF-8 ({error.reason})") from error


def holds_sweep(file: Path) -> bool:
    """Whether a TrainSweep is in this file; what else it may be is for its reader to say."""
    try:
        # The word alone: the models of sweeps take 30 ms that other commands do not need.
        return "TrainSweep" in kinds_in(read_file(file))
    except InvalidSpec:
        return False


def storage_uri(text: str) -> str:
    """A URI as it is; anything else is a folder of this machine."""
    return text if "://" in text else Path(text).resolve().as_uri()
