"""When a sweep is over, and as what: the first rule that holds.

Layer: core, pure. Invariant: it ends with success only where it has a result: a trial has reached
the target, or has ended with a value.
"""

from __future__ import annotations

import math

from trainrun._common.text import cut
from trainrun.sweep.records import End
from trainrun.sweep.results import ranked
from trainrun.sweep.view import SweepView
from trainrun_operator.core.sweep.config import SweepConfig

LONGEST = 200
"""Characters of why a trial has errored."""


def ending(view: SweepView, config: SweepConfig) -> End | None:
    """What the sweep ends with now; None: it goes on."""
    return (
        _too_many_failed(view, config)
        or _target_reached(view, config)
        or _time_spent(view, config)
        or _all_ended(view, config)
    )


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
        f"trial {last.number}: {last.reason}{_because(last.message)}. Raise maxFailedTrials, or "
        "set resume.resumeErrored and add 1 to resume.token, to go on",
    )


def _target_reached(view: SweepView, config: SweepConfig) -> End | None:
    goal = config.search.objective
    for trial in view.trials.values():
        # As reported: a trial that has diverged since has reached it all the same.
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
        f"ended, {results} with a value. Open trials are saved: raise activeTime to go on",
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
    return End("Failed", "NoTrialSucceeded", f"{counts}; `trainrun explain` tells why")


def _results(view: SweepView, config: SweepConfig) -> int:
    """Trials that have ended with a value that may be the best one."""
    return sum(not it.trial.open for it in ranked(view, config.search.objective))


def _because(message: str) -> str:
    return f" ({cut(message.splitlines()[0], LONGEST)})" if message.strip() else ""
