"""What the pictures of a sweep are of: its trials with values, titles and grades.

Layer: cli; pure. Bounded whatever the sweep holds: each picture has so many trials at most.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from trainrun.sweep.reports import OwnValue
from trainrun.sweep.results import best, standing
from trainrun.sweep.search import Objective
from trainrun.sweep.space import Parameter
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.cli import wording
from trainrun_operator.cli.pages.frame import safe
from trainrun_operator.cli.sweeping.plotting.scales import Numbers, scale_of_values
from trainrun_operator.cli.sweeping.texts import outcome, parameters, value_at

GRADES = 6
"""Classes v0, of the best trials, to v5, as many trials in each; v6 has those without a value."""
LONGEST_TITLE = 400
"""Characters of what is shown where a pointer rests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A trial as pictures show it."""

    trial: TrialView
    value: float | None
    """What it counts with, if that is a finite number."""
    grade: int
    """0 for the best trials, GRADES where there is no value."""

    @property
    def number(self) -> int:
        """Of the trial."""
        return self.trial.number

    @property
    def in_the_running(self) -> bool:
        """It has ended and may be the best one."""
        return self.value is not None and self.trial.state in ("Succeeded", "Stopped")


@dataclass(frozen=True, kw_only=True)
class Plotted:
    """All that pictures are of."""

    objective: Objective
    space: tuple[Parameter, ...]
    trials: tuple[Shown, ...]
    """By number."""
    best: int | None
    """Number of the trial that is ahead."""

    @cached_property
    def values(self) -> Numbers:
        """The axis of what trials have come to."""
        told = [it.value for it in self.trials if it.value is not None]
        return self.scale(told, best=self.objective.best(told))

    def scale(self, worst: Iterable[float], *, best: float | None) -> Numbers:
        """See `scale_of_values`; some axis where there are no values."""
        if best is None:
            return Numbers(0.0, 1.0)
        return scale_of_values(worst, best=best, goal=self.objective.goal)

    def leads(self, shown: Shown) -> bool:
        """Whether it is the best trial."""
        return shown.number == self.best

    def title(self, shown: Shown) -> str:
        """A trial in words, as an element: browsers show it where a pointer rests."""
        trial = shown.trial
        own = standing(trial, self.objective)
        so_far = "no value yet" if own is None else value_at(self.objective, own.value, own.step)
        came_to = so_far if trial.open else outcome(trial, self.objective)
        text = f"trial {trial.number} {trial.state}: {came_to}\n{parameters(trial.params)}"
        return f"<title>{safe(wording.shortened(text, LONGEST_TITLE))}</title>"

    def some(self, trials: Iterable[Shown], most: int) -> list[Shown]:
        """So many of them, evenly chosen by number, the best one among them."""
        given = list(trials)
        if len(given) <= most:
            return given
        leading = [it for it in given if self.leads(it)]
        others = [it for it in given if not self.leads(it)]
        room = most - len(leading)
        chosen = [others[at * len(others) // room] for at in range(room)]
        return sorted([*leading, *chosen], key=lambda it: it.number)

    def worst_first(self, trials: Iterable[Shown]) -> list[Shown]:
        """In the order in which they are drawn: the best one above all others."""
        return sorted(trials, key=lambda it: (self.leads(it), -it.grade))


def plotted_of(view: SweepView, objective: Objective, space: tuple[Parameter, ...]) -> Plotted:
    """From what the log says."""
    own = [_finite(standing(it, objective)) for it in view.trials.values()]
    ranks = sorted(it for it in own if it is not None)
    found = best(view, objective)
    return Plotted(
        objective=objective,
        space=space,
        trials=tuple(
            Shown(trial=it, value=value, grade=_grade(value, ranks, objective))
            for it, value in zip(view.trials.values(), own, strict=True)
        ),
        best=None if found is None else found.trial.number,
    )


def _finite(own: OwnValue | None) -> float | None:
    return None if own is None or not math.isfinite(own.value) else own.value


def _grade(value: float | None, ranks: Sequence[float], objective: Objective) -> int:
    """By rank: a few values that are far off do not make all others look alike."""
    if value is None:
        return GRADES
    if objective.goal == "minimize":
        ahead = bisect_left(ranks, value)
    else:
        ahead = len(ranks) - bisect_right(ranks, value)
    return ahead * GRADES // len(ranks)
