"""Early stopping: which trials end because others were better at the same step.

Layer: pure. The rules are those of Optuna's pruners of the same names, 4.2 to 5.0. Invariant: the
verdict on a report depends only on that report and those before it in the log, so every reader of
the log gets the same verdict at any time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice

from trainrun.sweep.search import (
    Asha,
    EarlyStopping,
    Hyperband,
    Objective,
    Percentile,
    Threshold,
)
from trainrun.sweep.view import ReportedAt, TrialView

Trials = Mapping[int, TrialView]


class Judging:
    """Judges each report once. Its memory only saves work: a new object gives the same verdicts.

    Without it, judging alone would take hours in a search of 1,000 trials with 100 reports each.
    """

    def __init__(self) -> None:
        self._passed: dict[tuple[int, int, EarlyStopping], int] = {}
        """By trial, incarnation and rule: the report of the sweep up to which it passed."""

    def why_ended_early(
        self, trials: Trials, trial: TrialView, rule: EarlyStopping, objective: Objective
    ) -> str:
        """See the function of this name."""
        judged = trial.number, trial.incarnation, rule
        newest = max(trial.order.values(), default=0)
        after = self._passed.get(judged, 0)
        if newest == after:
            return ""
        why = why_ended_early(trials, trial, rule, objective, after=after)
        if not why:
            self._passed[judged] = newest
        return why


def why_ended_early(
    trials: Trials, trial: TrialView, rule: EarlyStopping, objective: Objective, *, after: int = 0
) -> str:
    """Why this trial must end; empty: it continues. Reports up to number `after` among those of the
    sweep are not judged again."""
    match rule:
        case Asha():
            return _halved(trials, trial, rule, objective, after=after)
        case Hyperband():
            bracket = bracket_of(trial.number, rule)
            halving = Asha(rule.min_resource, rule.reduction_factor, skipped=bracket)
            if all(at.order <= after for at in _rungs(trial.points, halving)):
                return ""
            bracket_trials = {
                n: other for n, other in trials.items() if bracket_of(n, rule) == bracket
            }
            return _halved(bracket_trials, trial, halving, objective, after=after)
        case Percentile():
            found = (
                _worse(trials, so_far, rule, objective) for so_far in _judged(trial, rule, after)
            )
            return next(filter(None, found), "")
        case Threshold():
            found = (_beyond(so_far[-1], rule, objective) for so_far in _judged(trial, rule, after))
            return next(filter(None, found), "")


# ---------------------------------------------------------------------- ASHA and Hyperband


def _halved(
    trials: Trials, trial: TrialView, rule: Asha, objective: Objective, *, after: int
) -> str:
    factor = rule.reduction_factor
    others = (
        (*other.earlier, other.points) for other in trials.values() if other.number != trial.number
    )
    curves = [trial.points, *chain.from_iterable(others)]
    for rung, at in enumerate(_rungs(trial.points, rule)):
        if at.order <= after:
            continue
        if math.isnan(at.value):
            return f"at step {at.step} its {objective.metric} was not a number"
        got_here = [
            other.value
            for curve in curves
            for other in islice(_rungs(curve, rule), rung, rung + 1)
            if other.order <= at.order and not math.isnan(other.value)
        ]
        most = max(len(got_here) // factor, 1)
        ahead = sum(objective.better(value, at.value) for value in got_here)
        if ahead >= most:
            return (
                f"at step {at.step} its {objective.metric} {at.value:g} was not among the best "
                f"{most} of the {len(got_here)} that had reached rung {rung}"
            )
    return ""


def _rungs(curve: Iterable[ReportedAt], rule: Asha) -> Iterator[ReportedAt]:
    """The first report at or beyond each rung, up to the last rung reached."""
    rung = rule.skipped
    for at in curve:
        while at.step >= rule.min_resource * rule.reduction_factor**rung:
            yield at
            rung += 1


def bracket_of(number: int, rule: Hyperband) -> int:
    """The ASHA that a trial belongs to, 0 for the strictest. They take turns, each with as many
    trials as Hyperband assigns to it."""
    shares = _shares(rule)
    place = number % sum(shares)
    for bracket, share in enumerate(shares):
        if place < share:
            return bracket
        place -= share
    raise AssertionError("the shares add up to the sum")


@cache
def _shares(rule: Hyperband) -> tuple[int, ...]:
    """How many trials in a row each bracket gets per turn."""
    factor = rule.reduction_factor
    count = 1
    while rule.min_resource * factor**count <= rule.max_resource:
        count += 1
    return tuple(
        math.ceil(count * factor ** (count - 1 - bracket) / (count - bracket))
        for bracket in range(count)
    )


# ---------------------------------------------------------------------- percentile, threshold


def _worse(
    trials: Trials, so_far: Sequence[ReportedAt], rule: Percentile, objective: Objective
) -> str:
    at = so_far[-1]
    ended = [
        other
        for other in trials.values()
        if other.state == "Succeeded" and other.told_after < at.order
    ]
    if not ended or len(ended) < rule.startup_trials:
        return ""
    best = objective.best(earlier.value for earlier in so_far)
    if best is None:
        return f"until step {at.step} its {objective.metric} was not a number"
    others = [other.values[at.step] for other in ended if at.step in other.values]
    numbers = sorted(value for value in others if not math.isnan(value))
    if len(others) < rule.min_trials or not numbers:
        return ""
    share = rule.percentile if objective.goal == "minimize" else 100 - rule.percentile
    limit = _percentile(numbers, share)
    if not objective.better(limit, best):
        return ""
    return (
        f"until step {at.step} its best {objective.metric} was {best:g}; percentile "
        f"{rule.percentile:g} of the {len(numbers)} that have succeeded is {limit:g} there"
    )


def _beyond(at: ReportedAt, rule: Threshold, objective: Objective) -> str:
    if math.isnan(at.value):
        return f"at step {at.step} its {objective.metric} was not a number"
    if at.value < rule.lower:
        return f"at step {at.step} its {objective.metric} {at.value:g} was below {rule.lower:g}"
    if at.value > rule.upper:
        return f"at step {at.step} its {objective.metric} {at.value:g} was above {rule.upper:g}"
    return ""


def _judged(
    trial: TrialView, rule: Percentile | Threshold, after: int
) -> Iterator[Sequence[ReportedAt]]:
    """For the first report of each interval, all reports up to and including it."""
    warmup, interval, newest = rule.warmup_steps, rule.interval_steps, -1
    for place, at in enumerate(trial.points):
        begin = (at.step - warmup) // interval * interval + warmup
        if at.step >= warmup and newest < begin and at.order > after:
            yield trial.points[: place + 1]
        newest = max(newest, at.step)


def _percentile(numbers: list[float], share: float) -> float:
    """Interpolated between the two nearest numbers, as in numpy."""
    place = (len(numbers) - 1) * share / 100
    below, part = math.floor(place), place - math.floor(place)
    low, high = numbers[below], numbers[min(below + 1, len(numbers) - 1)]
    if low == high:  # also where both are infinite
        return low
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)
