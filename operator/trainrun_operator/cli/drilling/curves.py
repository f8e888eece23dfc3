"""Metrics of two runs compared, step by step.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainrun_operator.cli.drilling.clocks import (
    about_machine,
    about_memory,
    about_progress,
    about_training,
    computed,
)
from trainrun_operator.cli.drilling.states import of_state

if TYPE_CHECKING:
    from trainrun.contract.metrics import Metric
    from trainrun_operator.cli.drilling.course import Curve

FAINT = 0.01
"""Of a curve's range, that two undisturbed runs may be apart at most and still show something."""
SPREAD = 0.1
"""Of the range of such a curve, that another run may be apart from it."""
SEEN = 1.5
"""Times what is allowed, that a curve moves at least if new weights are to show in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What one metric of one run has in place of another's."""

    metric: str
    step: int
    expected: Metric
    got: Metric

    @property
    def size(self) -> float:
        """How far they are apart; infinite where that is no number."""
        return distance(self.expected, self.got)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a run may differ from an undisturbed one."""

    allowed: Mapping[str, float]
    """By metric; 0: not at all. Metrics that are not named are not compared."""
    largest: tuple[Difference, ...] = ()
    """Of each metric of the training in which the two undisturbed runs differ, where they do
    most."""
    steps: int = 0
    """That both of them have reported."""
    skipped: tuple[str, ...] = ()
    """Metrics that are not compared for their names: they are about the machine."""
    noisy: tuple[str, ...] = ()
    """Metrics that are not compared since the two undisturbed runs differ in them."""

    @property
    def exact(self) -> bool:
        """The script equals itself."""
        return not self.largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One metric that differs by more than is allowed."""

    first: Difference
    """The first step where it does."""
    largest: Difference
    steps: int
    """In which it does."""
    compared: int
    """Steps that were compared."""
    allowed: float


def tolerance(one: Curve, other: Curve, *, until: int) -> Tolerance:
    """What two undisturbed runs, up to a step, say about every other run. What differs between them
    proves nothing, unless it is next to nothing beside how far the curve moves."""
    steps = sorted(step for step in one.keys() & other.keys() if step <= until)
    names = list(dict.fromkeys(name for step in steps for name in one[step]))
    allowed: dict[str, float] = {}
    largest: list[Difference] = []
    skipped: list[str] = []
    noisy: list[str] = []
    for name in names:
        differences = _differences(one, other, name, steps)
        if about_machine(name) and not _the_same(name, differences):
            skipped.append(name)
            continue
        widest = max(differences, key=lambda it: it.size, default=None)
        if widest is None:
            continue
        if widest.size == 0:
            allowed[name] = 0.0
            continue
        if about_training(name) or of_state(name):
            largest.append(widest)
        moved = _range(it.expected for it in differences)
        if (about_training(name) or of_state(name)) and widest.size <= FAINT * moved:
            allowed[name] = SPREAD * moved
        else:
            noisy.append(name)
    return Tolerance(
        allowed=allowed,
        largest=tuple(largest),
        steps=len(steps),
        skipped=tuple(skipped),
        noisy=tuple(noisy),
    )


def shows_weights(control: Curve, within: Tolerance, *, after: int, until: int) -> bool:
    """Whether a run with new weights after this step would differ from an undisturbed one."""
    steps = sorted(step for step in control if after < step <= until)
    unequal = any(about_training(it.metric) and it.metric in within.noisy for it in within.largest)
    for name, allowed in within.allowed.items():
        if about_progress(name) or (unequal and not about_training(name)):
            continue
        for step, first in zip(steps, sorted(control), strict=False):
            now, begun = control[step].get(name), control[first].get(name)
            if now is not None and begun is not None and distance(now, begun) > SEEN * allowed:
                return True
    return False


def _range(values: Iterable[Metric]) -> float:
    """How far a curve moves; 0 where it has no numbers."""
    found = [it for it in values if not isinstance(it, str | bool) and math.isfinite(it)]
    return max(found) - min(found) if found else 0.0


def _the_same(name: str, differences: list[Difference]) -> bool:
    """Whether it is the training's, whatever its name. Memory may be the same in two undisturbed
    runs, and be another after a resume that is perfectly well."""
    if about_memory(name) or any(it.size for it in differences):
        return False
    return computed(it.expected for it in differences)


def deviations(
    run: Curve, undisturbed: Curve, within: Tolerance, *, after: int, until: int
) -> list[Deviation]:
    """Where a run differs from an undisturbed one by more than is allowed, in `after` < step <=
    `until`."""
    steps = sorted(s for s in run.keys() & undisturbed.keys() if after < s <= until)
    found = []
    for name, allowed in within.allowed.items():
        compared = list(_differences(undisturbed, run, name, steps))
        wrong = [it for it in compared if it.size > allowed]
        if wrong and (of_state(name) or not _of_process(undisturbed, run, name, steps)):
            largest = max(wrong, key=lambda it: it.size)
            found.append(
                Deviation(
                    first=wrong[0],
                    largest=largest,
                    steps=len(wrong),
                    compared=len(compared),
                    allowed=allowed,
                )
            )
    return found


def _of_process(undisturbed: Curve, run: Curve, name: str, steps: list[int]) -> bool:
    """Whether a metric has one value in all of a run, and another one in all of this: it tells
    about the process, as the number of its attempt does."""
    before = {metrics[name] for metrics in undisturbed.values() if name in metrics}
    now = {run[step][name] for step in steps if name in run[step]}
    return len(before) == len(now) == 1 and not about_training(name)


def compared_steps(run: Curve, undisturbed: Curve, *, after: int, until: int) -> int:
    """Steps that both have, in `after` < step <= `until`."""
    return sum(after < step <= until for step in run.keys() & undisturbed.keys())


def _differences(one: Curve, other: Curve, name: str, steps: list[int]) -> list[Difference]:
    return [
        Difference(metric=name, step=step, expected=one[step][name], got=other[step][name])
        for step in steps
        if name in one[step] and name in other[step]
    ]


def distance(one: Metric, other: Metric) -> float:
    """0 for what is the same, infinity where they are different and not both finite numbers."""
    if one == other or (_is_nan(one) and _is_nan(other)):
        return 0.0
    if isinstance(one, str | bool) or isinstance(other, str | bool):
        return math.inf
    apart = abs(one - other)
    return apart if math.isfinite(apart) else math.inf


def _is_nan(value: Metric) -> bool:
    return isinstance(value, float) and math.isnan(value)
