"""Everything that is checked and put together before a local sweep starts anything, and what is
taken up of its file while it is led.

Layer: cli. All bad input is found here, before a process is started or a file is written. A file
that changes is what `kubectl apply` is in a cluster. Invariant: one that cannot be taken up as a
whole changes nothing, and what is wrong with it is told once.
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
    """Where it keeps what is not in its storage; each trial has a place of its own below."""
    notes: tuple[str, ...]
    """What of the file has no meaning on this machine."""
    store: ObjectStore
    gpus_per_trial: int = 0
    """Of this machine's; 0 where it has none."""

    @property
    def name(self) -> str:
        """The sweep's folder in its storage."""
        return self.sweep.sweep_name

    @property
    def folder(self) -> RunStore:
        """The sweep's folder."""
        return RunStore(self.store, self.name)

    def make_places(self) -> None:
        """The folders that the trials' places are made in. Raises OSError."""
        _places(self.sweep).mkdir(parents=True, exist_ok=True)

    def uid(self) -> str:
        """The id that tells its sessions from those of other TrainSweeps. It is drawn the first
        time, and kept in a file beside the lock, which we hold. Raises OSError, and InvalidSpec for
        a file of another form."""
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
                f"{path}: cannot be read ({error!r}). The trials do not depend on it: move it "
                "away, and the sweep is taken up again as on another machine"
            ) from error

    def config(self, uid: str) -> SweepConfig:
        """What decisions go by."""
        return replace(sweep_config(self.sweep), uid=uid)

    def trial(self, action: CreateTrial, *, of_all: bool = False) -> Preparation:
        """An opening as a run of this machine; `of_all`: what its parameters decide is not looked
        for on this machine. Raises InvalidSpec, with `of_all` for what is wrong with every
        trial."""
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
        """The variables that are others for each trial."""
        space = {variable_of(parameter.name) for parameter in self.sweep.spec.space}
        return {variables.TRIAL, variables.PARAMS, *space}

    def place_of(self, name: str) -> RunPlace:
        """Of the run of this name, not of its folder: a later opening is another TrainRun there."""
        return RunPlace(folder=_places(self.sweep) / name)


def prepare_sweep(options: RunOptions) -> SweepPreparation:
    """Read and check everything. Raises InvalidSpec."""
    if options.faults:
        raise InvalidSpec("--fault is for a TrainRun: the trials of a TrainSweep share no step")
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
    """What is wrong with the program shows before any trial has been asked for."""
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
            f"each need {each * spec.max_concurrent}, this machine offers {len(here)}; at most "
            f"{len(here) // each} trials can work at the same time"
        )
    return each if here else 0


def _places(sweep: TrainSweep) -> Path:
    return places_root(trials_uri(sweep), environ=os.environ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The file says something else, and may."""

    prepared: SweepPreparation
    fields: tuple[str, ...]
    """Below `spec`."""


class WatchedFile:
    """The file that a sweep was prepared from."""

    def __init__(self, prepared: SweepPreparation, read: Callable[[], SweepPreparation]) -> None:
        """`read` prepares it again as at the start; it may raise TrainRunError and OSError."""
        self._in_force = prepared
        self._read = read
        # Read once more at the first look: it may have changed since it was prepared.
        self._last_stamp: tuple[int, ...] | None = ()
        self._reported = ""

    def look(self) -> Change | str | None:
        """What is new since the last look; in one line why it cannot be taken up. Reads the file
        only where it was written meanwhile."""
        # Taken before the file is read: what is written during that is seen the next time.
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
    """Refuse what no running sweep can take up. Raises InvalidSpec."""
    before, after = old.sweep.spec, new.sweep.spec
    fixed = [field for field in differences(before, after) if _of_storage(field)]
    fixed += changed_fields(immutable_part(before), immutable_part(after))
    if old.sweep.metadata.name != new.sweep.metadata.name:
        fixed.insert(0, "metadata.name")
    if fixed:
        raise InvalidSpec(
            f"{new.file}: {', '.join(fixed)} cannot change: take that back, or give another search "
            "a file and a name of its own"
        )
    if after.resume.token < before.resume.token:
        raise InvalidSpec(
            f"{new.file}: spec.resume.token: {after.resume.token} is less than "
            f"{before.resume.token}, which it was before; it can only grow"
        )
    if old.gpus_per_trial != new.gpus_per_trial:
        # Trials of both kinds would share the GPUs, and one of them would find too few.
        raise InvalidSpec(
            f"{new.file}: spec.run: each trial has {old.gpus_per_trial} GPUs and would have "
            f"{new.gpus_per_trial}, which cannot change while trials work: stop the sweep with "
            "Ctrl-C and run it again"
        )


def _of_storage(field: str) -> bool:
    return field.startswith("storage.") and field != "storage.onExisting"


def _in_one_line(error: Exception) -> str:
    head, *rest = (line.strip() for line in str(error).splitlines())
    return f"{head}: {'; '.join(rest)}" if rest else head
