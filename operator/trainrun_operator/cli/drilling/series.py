"""The curves of a drill as points, for the pictures of them.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainrun_operator.cli.drilling.clocks import about_machine
from trainrun_operator.cli.drilling.text import FAULTS

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Curve
    from trainrun_operator.cli.drilling.rehearsed import Drill

UNDISTURBED = "undisturbed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one run."""

    name: str
    """Of the run."""
    points: tuple[tuple[int, float], ...]
    """(step, value), by step; what is no finite number is left out."""
    differs: bool = False
    """A finding was made of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One metric of all runs, the undisturbed one first."""

    metric: str
    series: tuple[Series, ...]

    @property
    def steps(self) -> tuple[int, int]:
        """The first and the last one."""
        told = [step for it in self.series for step, _ in it.points]
        return min(told), max(told)

    @property
    def values(self) -> tuple[float, float]:
        """The lowest and the highest one; never the same."""
        told = [value for it in self.series for _, value in it.points]
        low, high = min(told), max(told)
        return (low, high) if high > low else (low - 0.5, high + 0.5)


def pictures(drill: Drill, *, most: int) -> list[Picture]:
    """Of so many metrics at most: those that are named as losses first."""
    first = drill.curve.values()
    names = dict.fromkeys(name for metrics in first for name in metrics)
    compared = drill.within.allowed if drill.within is not None else {}
    shown = [name for name in names if name in compared or not about_machine(name)]
    shown.sort(key=lambda name: "loss" not in name.lower())
    found = (_picture(drill, name) for name in shown)
    return [it for it in found if it is not None][:most]


def _picture(drill: Drill, metric: str) -> Picture | None:
    control = _points(drill.curve, metric, until=drill.until)
    if len(control) < 2:
        return None
    runs = [
        Series(
            name=FAULTS[it.scenario.name],
            points=_points(it.curve, metric, until=drill.until),
            differs=it.outcome == "Found",
        )
        for it in drill.rehearsed
    ]
    undisturbed = Series(name=UNDISTURBED, points=control)
    return Picture(metric=metric, series=(undisturbed, *(it for it in runs if it.points)))


def _points(curve: Curve, metric: str, *, until: int | None) -> tuple[tuple[int, float], ...]:
    last = math.inf if until is None else until
    told = ((step, curve[step].get(metric)) for step in sorted(curve) if step <= last)
    return tuple(_finite(told))


def _finite(told: Iterable[tuple[int, object]]) -> Iterable[tuple[int, float]]:
    for step, value in told:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield step, float(value)
