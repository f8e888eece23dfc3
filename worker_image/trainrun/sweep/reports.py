"""What a trial's reports make of it: its curve, its own value, and whether it has diverged.

Layer: pure. Reports may come in any order of the attempts: those that an agent could not send are
found in the store once a later attempt has ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainrun.sweep.records import TrialReport
    from trainrun.sweep.search import Objective
    from trainrun.sweep.view import TrialView

NANS = 2
"""Steps without a number that make a trial diverge: one may be an accident of one batch."""


@dataclass(frozen=True)
class OwnValue:
    """What a trial counts with."""

    value: float
    step: int


def on_reports(
    trial: TrialView, reports: Iterable[TrialReport], *, count: int = 0
) -> tuple[TrialView, int]:
    """The trial once these reports of it were read, in order; as it was, if all are late or old.
    And how many reports of the sweep have counted by then; before, `count` have.

    All at once: each time the trial is made anew its whole curve is copied.
    """
    heard, fresh = dict(trial.heard), list["TrialReport"]()
    for it in reports:
        late = it.incarnation != trial.incarnation or not trial.open
        if not late and it.seq > heard.get(it.attempt, 0):
            heard[it.attempt] = it.seq
            fresh.append(it)
    if not fresh:  # mostly, where a report is told again: then nothing long is copied
        return trial, count
    resumed, curve, order = dict(trial.resumed), dict(trial.curve), dict(trial.order)
    for place, it in enumerate(fresh, start=count + 1):
        curve.setdefault((it.attempt, it.step), float(it.value))
        order.setdefault(it.step, place)
        if it.attempt != 0:
            resumed.setdefault(it.attempt, it.resumed)
    after = replace(trial, heard=heard, resumed=resumed, curve=curve, order=order)
    return after, count + len(fresh)


def attempted(trial: TrialView, *, attempt: int, resumed: int) -> TrialView:
    """The trial once it is known that this attempt went on from step `resumed`; 0: none did."""
    if attempt == 0 or attempt in trial.resumed:
        return trial
    return replace(trial, resumed={**trial.resumed, attempt: resumed})


def own_value(trial: TrialView, objective: Objective) -> OwnValue | None:
    """What the trial counts with now; None: it has reported nothing that survived.

    With `best` a value that is not a number counts only where there is no other.
    """
    results = trial.results
    return own_of(results, objective) if results else None


def own_of(results: Mapping[int, float], objective: Objective) -> OwnValue:
    """What a trial with these results, at least one, counts with."""
    last = max(results)
    best = objective.best(results.values()) if objective.value == "best" else None
    if best is None:
        return OwnValue(results[last], last)
    return OwnValue(best, min(step for step, value in results.items() if value == best))


def diverged(trial: TrialView, objective: Objective) -> bool:
    """Whether the trial is to be ended because its objective is no number any more."""
    return objective.stop_on_nan and sum(map(math.isnan, trial.values.values())) >= NANS
