"""What trials come to: the end of one, and the best of all.

Layer: pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainrun.sweep.records import Tell, TrialState, written
from trainrun.sweep.reports import OwnValue, attempted, own_of, own_value

if TYPE_CHECKING:
    from trainrun.sweep.search import Objective
    from trainrun.sweep.targets import EndedRun
    from trainrun.sweep.view import SweepView, TrialView


@dataclass(frozen=True)
class Best:
    """The trial that is ahead, and by what."""

    trial: TrialView
    own: OwnValue


def ended(trial: TrialView, run: EndedRun, objective: Objective) -> Tell:
    """The record of an opening whose run has ended."""
    left = attempted(trial, attempt=run.attempt, resumed=run.resumed)
    own = own_value(left, objective)
    state: TrialState
    if not run.succeeded:
        state, reason, message = "Errored", run.reason, run.message
    elif own is None:
        state, reason = "Errored", "NoObjective"
        message = f"it ended with success and {_missed(run, objective.metric)}"
    elif math.isnan(own.value):
        state, reason = "Diverged", "NotANumber"
        message = f"its {objective.metric} is not a number (step {own.step})"
    else:
        state, reason, message = "Succeeded", "Ended", ""
    told = _tell(trial, state=state, reason=reason, message=message, own=own)
    return replace(told, restarts=run.restarts, attempt=run.attempt, resumed=run.resumed)


def stopped(
    trial: TrialView, objective: Objective, *, state: TrialState, reason: str, message: str
) -> Tell:
    """The record of a trial that is ended before its time: it keeps its own last number."""
    numbers = {at: value for at, value in trial.results.items() if not math.isnan(value)}
    own = own_of(numbers, objective) if numbers else None
    return _tell(trial, state=state, reason=reason, message=message, own=own)


def best(view: SweepView, objective: Objective) -> Best | None:
    """The best trial, the lowest number among equals; failed, diverged, skipped ones are none.

    A trial that is open counts with what it has reported so far.
    """
    return next(iter(ranked(view, objective)), None)


def ranked(view: SweepView, objective: Objective) -> list[Best]:
    """The trials that count, the best first."""
    sign = 1 if objective.goal == "minimize" else -1
    found = [
        Best(trial, own)
        for trial in view.trials.values()
        if trial.state in ("Open", "Succeeded", "Stopped")
        and (own := standing(trial, objective)) is not None
    ]
    # Sorting keeps the order of equals.
    return sorted(found, key=lambda it: sign * it.own.value)


def standing(trial: TrialView, objective: Objective) -> OwnValue | None:
    """What a trial counts with, ended or not; None: nothing, or no number."""
    own = own_value(trial, objective) if trial.open else _told(trial)
    return None if own is None or math.isnan(own.value) else own


def _missed(run: EndedRun, metric: str) -> str:
    if metric in run.metrics:
        call = f'trainrun.report({{"{metric}": float(...)}}, step=...)'
        return f"reported {metric} as text or true and false, never as a number: call {call}"
    instead = f", but {', '.join(run.metrics)}" if run.metrics else ""
    call = f'trainrun.report({{"{metric}": ...}}, step=...)'
    return f"never reported {metric}{instead}: call {call}"


def _told(trial: TrialView) -> OwnValue | None:
    return None if trial.value is None else OwnValue(trial.value, trial.step)


def _tell(
    trial: TrialView, *, state: TrialState, reason: str, message: str, own: OwnValue | None
) -> Tell:
    return Tell(
        trial=trial.number,
        opening=trial.opening,
        state=state,
        reason=reason,
        message=message,
        value="" if own is None else written(own.value),
        step=0 if own is None else own.step,
    )
