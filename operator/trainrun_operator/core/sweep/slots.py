"""Which trials work next, as far as there are slots.

Layer: core, pure. A trial that was not begun comes before one that was paused and let go on;
otherwise the lower number does. New parameters are asked for only where slots are left: a sampler
that is asked ahead has learned less.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.core.sweep.config import SweepConfig
from trainrun_operator.core.sweep.observation import TrialRun
from trainrun_operator.core.sweep.plan import CreateTrial, SuspendTrial
from trainrun_operator.core.sweep.trial import run_name


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How the slots are filled."""

    actions: tuple[CreateTrial | SuspendTrial, ...]
    left: int
    """Slots for trials that have no parameters yet."""
    held_back: int
    """Runs whose waiting for room keeps others from starting; 0: nobody is held back."""


def fill(log: SweepView, runs: tuple[TrialRun, ...], config: SweepConfig, *, name: str) -> Slots:
    """Start what may start now in the sweep of this name."""
    # One that was just let go on looks for room as well, once somebody has looked at it.
    waiting = sum(run.live and run.phase in ("Waiting", "Suspended") for run in runs)
    free = max(0, config.max_concurrent - sum(run.live for run in runs))
    room = max(0, min(free, config.max_unplaced - waiting))
    ready = _ready(log, runs, config)
    chosen = [_start(trial, run, name) for trial, run in ready[:room]]
    more = len(ready) > len(chosen) or log.asked < config.trials
    return Slots(
        actions=tuple(chosen),
        left=room - len(chosen),
        held_back=waiting if more and free > room else 0,
    )


def _ready(
    log: SweepView, runs: tuple[TrialRun, ...], config: SweepConfig
) -> list[tuple[TrialView, TrialRun | None]]:
    """Open trials that nothing works on and nobody has paused, in the order of the queue."""
    by_opening = {(run.trial, run.opening): run for run in runs}
    found = [
        (trial, by_opening.get((trial.number, trial.opening)))
        for trial in log.trials.values()
        if trial.open and trial.number not in config.paused | config.stopped
    ]
    idle = [(trial, run) for trial, run in found if run is None or not (run.live or run.ended)]
    return sorted(idle, key=lambda pair: (pair[1] is not None, pair[0].number))


def _start(trial: TrialView, run: TrialRun | None, name: str) -> CreateTrial | SuspendTrial:
    if run is not None:
        return SuspendTrial(name=run.name, uid=run.uid, suspend=False)
    return creation(trial, name)


def creation(trial: TrialView, sweep: str) -> CreateTrial:
    """What creates the run of a trial's opening in the sweep of this name."""
    return CreateTrial(name=run_name(sweep, trial), trial=trial)
