"""The rules of a sweep: when it is over, which trials work next, what can be deleted.

Layer: core, pure. The first rule that holds ends the sweep; with success only if it has a result: a
trial has reached the target, or has ended with a value.

New trials come before paused ones that may continue; otherwise the lower number comes first. The
sampler is asked for parameters only while slots are free: asked earlier, it would know less.

A run that the view does not know is kept, since its creator had a newer view. Checkpoints of open
and errored trials stay, since these may resume; so do those of the best ended trials. No checkpoint
is deleted while a run of its trial exists, which may still be saving. An open trial that is ahead
displaces no ended one: it may end worse, or fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from trainrun._common.text import cut
from trainrun.sweep.records import End
from trainrun.sweep.view import SweepView, TrialView, ranked
from trainrun_operator.core.sweep.boundary import CreateTrial, DeleteTrial, SuspendTrial, TrialRun
from trainrun_operator.core.sweep.config import SweepConfig, run_name

LONGEST = 200
"""The most characters that a message shows of a trial's error."""


def endings(view: SweepView, config: SweepConfig) -> list[End]:
    """The ends that apply now, in order of precedence; none: the sweep continues."""
    rules = (_too_many_failed, _target_reached, _time_spent, _all_ended)
    return [end for rule in rules if (end := rule(view, config)) is not None]


def _too_many_failed(view: SweepView, config: SweepConfig) -> End | None:
    errored = [trial for trial in view.trials.values() if trial.state == "Errored"]
    if not 0 <= config.max_failed_trials < len(errored):
        return None
    last = errored[-1]
    have = "1 trial has" if len(errored) == 1 else f"{len(errored)} trials have"
    return End(
        "Failed",
        "TooManyFailedTrials",
        f"{have} errored and maxFailedTrials is {config.max_failed_trials}; "
        f"trial {last.number}: {last.reason}{_because(last.message)}. To continue, raise "
        "maxFailedTrials, or set resume.resumeErrored and add 1 to resume.token",
    )


def _target_reached(view: SweepView, config: SweepConfig) -> End | None:
    goal = config.search.objective
    for trial in view.trials.values():
        # By reports: a trial that reached the target and diverged later counts.
        reached = [step for step, value in trial.values.items() if goal.reached(value)]
        if reached:
            step = min(reached)
            return End(
                "Succeeded",
                "TargetReached",
                f"trial {trial.number} has reported {goal.metric} {trial.values[step]:g} at step "
                f"{step}; the target is {goal.target:g}",
            )
    return None


def _time_spent(view: SweepView, config: SweepConfig) -> End | None:
    if time_left(view, config) > 0:
        return None
    results, ended = _results(view, config), view.asked - view.count("Open")
    return End(
        "Succeeded" if results else "Failed",
        "BudgetExhausted",
        f"trials have worked for {view.active:.0f} s and budget.activeTime is "
        f"{config.active_time:.0f} s; {ended} of {max(config.trials, view.asked)} trials have "
        f"ended, {results} with a value. Open trials are saved: raise activeTime to continue",
    )


def time_left(view: SweepView, config: SweepConfig) -> float:
    """Seconds of work that the budget still allows; infinite without one."""
    return math.inf if config.active_time is None else config.active_time - view.active


def _all_ended(view: SweepView, config: SweepConfig) -> End | None:
    if view.asked < config.trials or view.count("Open"):
        return None
    all_of_them = "its only trial has" if view.asked == 1 else f"all {view.asked} trials have"
    counts = f"{all_of_them} ended, {view.count('Succeeded')} with success"
    if results := _results(view, config):
        stopped = "" if view.count("Succeeded") else f", {results} stopped with a value"
        return End("Succeeded", "AllTrialsEnded", counts + stopped)
    return End("Failed", "NoTrialSucceeded", f"{counts}; `trainrun explain` shows why")


def _results(view: SweepView, config: SweepConfig) -> int:
    """Number of trials that have ended with a value that can be the best."""
    return sum(not ranking.trial.open for ranking in ranked(view, config.search.objective))


def _because(message: str) -> str:
    return f" ({cut(message.splitlines()[0], LONGEST)})" if message.strip() else ""


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How free slots are filled."""

    actions: tuple[CreateTrial | SuspendTrial, ...]
    left: int
    """Slots for trials that have no parameters yet."""
    held_back: int
    """Runs that wait for room and so keep others from starting; 0: none is kept back."""


def fill(log: SweepView, runs: tuple[TrialRun, ...], config: SweepConfig, *, name: str) -> Slots:
    """Start what may start now in the sweep of this name."""
    # A run that was just resumed also needs room, once the operator looks at it.
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
    """Open trials without a live run that are neither paused nor stopped, in queue order."""
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
    """The action that creates the run of a trial's opening in the sweep of this name."""
    return CreateTrial(name=run_name(sweep, trial), trial=trial)


def cleared(log: SweepView, runs: Iterable[TrialRun], config: SweepConfig) -> tuple[int, ...]:
    """Numbers of the trials whose checkpoints are no longer needed, in order."""
    if config.best_checkpoints is None:
        return ()
    ended = [
        ranking.trial for ranking in ranked(log, config.search.objective) if not ranking.trial.open
    ]
    leading = ended[: config.best_checkpoints]
    kept = {trial.number for trial in leading} | {run.trial for run in runs}
    return tuple(
        trial.number
        for trial in log.trials.values()
        if trial.number not in kept and trial.state not in ("Open", "Errored")
    )


def deletions(
    log: SweepView, runs: Iterable[TrialRun], config: SweepConfig
) -> tuple[DeleteTrial, ...]:
    """Runs of closed openings, by name, except the newest failed ones."""
    closed = [run for run in runs if _is_closed(log, run)]
    failed = [run for run in closed if run.phase == "Failed"]
    failed.sort(key=lambda run: (run.created, run.name), reverse=True)
    kept = {run.uid for run in failed[: config.failed_runs]}
    return tuple(
        DeleteTrial(name=run.name, uid=run.uid)
        for run in sorted(closed, key=lambda run: run.name)
        if run.uid not in kept
    )


def _is_closed(log: SweepView, run: TrialRun) -> bool:
    trial = log.trials.get(run.trial)
    if trial is None or run.opening > trial.opening:
        return False
    return run.opening < trial.opening or not trial.open
