"""Checks a local sweep's input before anything starts, and watches its file for edits.

Layer: cli. All bad input is found here, before a process starts or a file is written. Editing the
file is what `kubectl apply` is in a cluster. Invariant: an edit is applied as a whole or not at
all, and its problem is reported once.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.contract import variables
from trainrun.errors import InvalidSpec, TrainRunError
from trainrun.sweep.samplers import ask
from trainrun.sweep.view import TrialView
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.api.sweep.values import variable_of
from trainrun_operator.cli.leading import RunOptions
from trainrun_operator.cli.preparation import Preparation, preparation_of
from trainrun_operator.cli.sweeping.stored_sweep import load_sweep, store_of
from trainrun_operator.core.sweep.boundary import CreateTrial
from trainrun_operator.core.sweep.config import (
    METRICS_INTERVAL,
    SweepConfig,
    changed_fields,
    differences,
    immutable_part,
    in_sweep,
    sweep_config,
    trial_run,
    trials_uri,
)
from trainrun_operator.runtime.clerk_work import suggest_of
from trainrun_operator.worlds.local.place import RunPlace, places_root
from trainrun_operator.worlds.local.program import gpus_here


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPreparation:
    """A sweep that can be started."""

    file: Path
    sweep: TrainSweep
    place: RunPlace
    """Its folder on this machine; each trial has one of its own."""
    notes: tuple[str, ...]
    """Parts of the file that this machine ignores, one sentence each."""
    store: ObjectStore
    gpus_per_trial: int = 0
    """GPUs of this machine; 0 if it has none."""

    @property
    def name(self) -> str:
        """The name of the sweep's folder in its storage."""
        return self.sweep.sweep_name

    @property
    def folder(self) -> RunStore:
        """The sweep's folder in its storage."""
        return RunStore(self.store, self.name)

    def make_places(self) -> None:
        """Create the folder for the trials' places. Raises OSError."""
        _places(self.sweep).mkdir(parents=True, exist_ok=True)

    def uid(self) -> str:
        """The id that tells its sessions from those of other TrainSweeps: drawn once, and stored in
        a file next to the lock, which we hold. Raises OSError, and InvalidSpec if the file cannot
        be read."""
        path = self.place.folder / "sweep.json"
        try:
            return str(json.loads(path.read_text())["uid"])
        except FileNotFoundError:
            drawn = str(uuid.uuid4())
            new = path.with_suffix(".new")
            new.write_text(json.dumps({"uid": drawn}))
            new.replace(path)
            return drawn
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidSpec(
                f"{path}: cannot be read ({error!r}). The trials do not depend on it: move it away "
                "and run the command again, and the sweep continues as on another machine"
            ) from error

    def config(self, uid: str) -> SweepConfig:
        """What decisions are based on."""
        return replace(sweep_config(self.sweep), uid=uid)

    def trial(self, action: CreateTrial, *, of_all: bool = False) -> Preparation:
        """An opening as a run of this machine; `of_all`: do not check files that depend on its
        parameters. Raises InvalidSpec, with `of_all` only for what is wrong with every trial."""
        run = trial_run(self.sweep, action)
        varying = self._varying if of_all else ()
        try:
            prepared = preparation_of(run, file=self.file, varying=varying)
        except InvalidSpec as error:
            raise InvalidSpec(in_sweep(str(error))) from error
        place = self.place_of(action.name)
        return replace(prepared, place=place, metrics_interval=METRICS_INTERVAL)

    @property
    def _varying(self) -> set[str]:
        """The variables whose values differ between trials."""
        space = {variable_of(parameter.name) for parameter in self.sweep.spec.space}
        return {variables.TRIAL, variables.PARAMS, *space}

    def place_of(self, name: str) -> RunPlace:
        """The place of the run with this name: each opening of a trial is another TrainRun."""
        return RunPlace(folder=_places(self.sweep) / name)


def prepare_sweep(options: RunOptions) -> SweepPreparation:
    """Read and check everything. Raises InvalidSpec."""
    if options.faults:
        raise InvalidSpec("--fault needs a TrainRun: the trials of a TrainSweep share no step")
    file = options.file
    sweep = load_sweep(file, storage=options.storage, replicas=options.replicas)
    suggest_of(sweep.spec.sampler.name, where=f"{file}: spec.sampler.name")
    root = places_root(sweep.spec.storage.uri, environ=os.environ)
    prepared = SweepPreparation(
        file=file,
        sweep=sweep,
        place=RunPlace(folder=root / sweep.sweep_name),
        notes=(),
        store=store_of(sweep),
    )
    first = _first_trial(prepared)
    gpus = _gpus_per_trial(prepared, first, os.environ)
    notes = tuple(in_sweep(note) for note in first.notes)
    return replace(prepared, notes=notes, gpus_per_trial=gpus)


def _first_trial(prepared: SweepPreparation) -> Preparation:
    """A trial to check the program with, before any trial is asked for. Raises InvalidSpec."""
    config = prepared.config("")
    params = {**ask(config.search, 0), **dict(config.search.fixed)}
    name = f"{prepared.sweep.metadata.name}-00000"
    return prepared.trial(CreateTrial(name=name, trial=TrialView(0, params)), of_all=True)


def _gpus_per_trial(
    prepared: SweepPreparation, trial: Preparation, environ: Mapping[str, str]
) -> int:
    here, spec = gpus_here(environ), prepared.sweep.spec
    each = trial.program.gpus_per_worker * spec.run.workers.replicas
    if here and each * spec.max_concurrent > len(here):
        raise InvalidSpec(
            f"{prepared.file}: spec.maxConcurrent: {spec.max_concurrent} trials with {each} GPUs "
            f"each need {each * spec.max_concurrent}, this machine has {len(here)}; at most "
            f"{len(here) // each} trials can run at the same time"
        )
    return each if here else 0


def _places(sweep: TrainSweep) -> Path:
    return places_root(trials_uri(sweep), environ=os.environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A valid edit of the file."""

    prepared: SweepPreparation
    fields: tuple[str, ...]
    """Changed fields, below `spec`."""


class WatchedFile:
    """The file that a sweep was prepared from."""

    def __init__(self, prepared: SweepPreparation, read: Callable[[], SweepPreparation]) -> None:
        """`read` prepares the sweep again from the file; may raise TrainRunError and OSError."""
        self._in_force = prepared
        self._read = read
        # Equal to no stamp: the first look reads the file, which may have changed since.
        self._last_stamp: tuple[int, ...] | None = ()
        self._reported = ""

    def look(self) -> Change | str | None:
        """The change since the last look, or in one line why it cannot be applied, or None. Reads
        the file only if it was written since."""
        # Taken before reading: the next look sees what is written during the reading.
        stamp = _stamp(self._in_force.file)
        if stamp == self._last_stamp:
            return None
        self._last_stamp = stamp
        try:
            new = self._read()
            _check(self._in_force, new)
        except (TrainRunError, OSError) as error:
            before, self._reported = self._reported, _in_one_line(error)
            return self._reported if self._reported != before else None
        self._reported = ""
        fields = differences(self._in_force.sweep.spec, new.sweep.spec)
        if not fields:
            return None
        self._in_force = new
        return Change(prepared=new, fields=tuple(fields))


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _check(old: SweepPreparation, new: SweepPreparation) -> None:
    """Raises InvalidSpec for an edit that a running sweep cannot apply."""
    before, after = old.sweep.spec, new.sweep.spec
    fixed = [field for field in differences(before, after) if _of_storage(field)]
    fixed += changed_fields(immutable_part(before), immutable_part(after))
    if old.sweep.metadata.name != new.sweep.metadata.name:
        fixed.insert(0, "metadata.name")
    if fixed:
        raise InvalidSpec(
            f"{new.file}: {', '.join(fixed)} cannot change. Undo the edit, or give the new search "
            "its own file and name"
        )
    if after.resume.token < before.resume.token:
        raise InvalidSpec(
            f"{new.file}: spec.resume.token: {after.resume.token} is less than "
            f"{before.resume.token}, the old value; it can only grow"
        )
    if old.gpus_per_trial != new.gpus_per_trial:
        # Trials of both kinds would share the GPUs, and some would not get enough.
        raise InvalidSpec(
            f"{new.file}: spec.run: GPUs per trial cannot change from {old.gpus_per_trial} to "
            f"{new.gpus_per_trial} while trials run: stop the sweep with Ctrl-C and run it again"
        )


def _of_storage(field: str) -> bool:
    return field.startswith("storage.") and field != "storage.onExisting"


def _in_one_line(error: Exception) -> str:
    head, *rest = (line.strip() for line in str(error).splitlines())
    return f"{head}: {'; '.join(rest)}" if rest else head
