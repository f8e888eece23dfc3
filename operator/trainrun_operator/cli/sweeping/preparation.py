"""Everything that is checked and put together before a local sweep starts anything.

Layer: cli. All bad input is found here, before a process is started or a file is written.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.contract import variables
from trainrun.errors import InvalidSpec
from trainrun.sweep.samplers import ask
from trainrun.sweep.view import TrialView
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.api.sweep.values import variable_of
from trainrun_operator.cli.preparation import Preparation, preparation_of
from trainrun_operator.cli.sweeping.identity import SweepIdentity
from trainrun_operator.cli.sweeping.loading import load_sweep, store_of
from trainrun_operator.core.sweep.boundary import CreateTrial
from trainrun_operator.core.sweep.config import (
    METRICS_INTERVAL,
    SweepConfig,
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
    def identity(self) -> SweepIdentity:
        """By which its sessions are told from those of other TrainSweeps."""
        return SweepIdentity(self.place.folder / "sweep.json")

    @property
    def folder(self) -> RunStore:
        """The sweep's folder."""
        return RunStore(self.store, self.name)

    def make_places(self) -> None:
        """The folders that the trials' places are made in. Raises OSError."""
        _places(self.sweep).mkdir(parents=True, exist_ok=True)

    def config(self, uid: str) -> SweepConfig:
        """What decisions go by."""
        return replace(sweep_config(self.sweep), uid=uid)

    def trial(self, action: CreateTrial) -> Preparation:
        """An opening as a run of this machine. Raises InvalidSpec."""
        return self._trial(action, varying=())

    def of_all(self, action: CreateTrial) -> Preparation:
        """The same, but what its parameters decide is not looked for on this machine. Raises
        InvalidSpec for what is wrong with every trial."""
        return self._trial(action, varying=self._varying)

    @property
    def _varying(self) -> set[str]:
        """The variables that are others for each trial."""
        space = {variable_of(it.name) for it in self.sweep.spec.space}
        return {variables.TRIAL, variables.PARAMS, *space}

    def _trial(self, action: CreateTrial, *, varying: Collection[str]) -> Preparation:
        run = trial_run(self.sweep, action)
        try:
            prepared = preparation_of(run, file=self.file, varying=varying)
        except InvalidSpec as error:
            raise InvalidSpec(in_sweep(str(error))) from error
        place = self.place_of(action.name)
        return replace(prepared, place=place, metrics_interval=METRICS_INTERVAL)

    def place_of(self, name: str) -> RunPlace:
        """Of the run of this name, not of its folder: a later opening is another TrainRun there."""
        return RunPlace(folder=_places(self.sweep) / name)


def prepare_sweep(
    file: Path, *, replicas: int | None, storage: str | None, faults: tuple[str, ...]
) -> SweepPreparation:
    """Read and check everything. Raises InvalidSpec."""
    if faults:
        raise InvalidSpec("--fault is for a TrainRun: the trials of a TrainSweep share no step")
    sweep = load_sweep(file, storage=storage, replicas=replicas)
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
    return prepared.of_all(CreateTrial(name=name, trial=TrialView(0, params)))


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
