"""Parameters chosen by CMA-ES: a normal distribution that moves, turns and shrinks towards good
trials.

Layer: next to `trainrun.checkpoint`, as `optuna_study`. Invariant: the distribution is a fold over
the ended trials, in the order of their ends in the log. Each block of them, of the size of CMA-ES's
population, changes it once. The random numbers depend only on the sweep's seed and the trial's
number. So no state is stored, and the same question always gets the same answer.

The steps are those of `cmaes`, which Optuna's CmaEsSampler also uses, with the same defaults: from
the middle of the space, a sixth of each range wide. Optuna's sampler cannot be used here: it stores
itself as a pickle in its trials, and ignores trials that end after the next population has begun,
which are most of them if many trials run at once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable

import numpy as np
from cmaes import CMA
from numpy.typing import NDArray

from trainrun.sweep.samplers import Suggestion, by_lot, seed_of, share
from trainrun.sweep.search import FloatRange, IntRange, Parameter, Scalar, Search, choose
from trainrun.sweep.view import SweepView, TrialView

WIDTH = 1 / 6
"""Standard deviation at the beginning, as a share of each range."""
BELOW_ONE = math.nextafter(1.0, 0.0)
"""The greatest share of a range."""


class CmaSampler:
    """Asks CMA-ES. It caches the folded distribution, which saves time and changes no answer."""

    def __init__(self) -> None:
        self._cached: _Distribution | None = None

    def __call__(self, view: SweepView, search: Search) -> Suggestion:
        """Parameters for the next trial. Raises whatever `cmaes` raises."""
        number = view.asked
        ended = in_order(view)
        # Put back only when complete: a half-folded distribution must not be used again.
        distribution, self._cached = self._cached, None
        if distribution is None or not distribution.is_of(search, ended):
            distribution = _Distribution(search)
        distribution.fold(ended)
        self._cached = distribution
        point = distribution.drawn(number)

        def pick(parameter: Parameter) -> Scalar:
            if parameter.name in point:
                return parameter.domain.at(point[parameter.name])
            return by_lot(parameter, search.seed, number)

        return Suggestion(choose(search.space, pick))


def in_order(view: SweepView) -> list[TrialView]:
    """The trials that CMA-ES learns from, in the order of their ends."""
    found = [trial for trial in view.trials.values() if _is_evidence(trial)]
    return sorted(found, key=lambda trial: trial.ended_at)


def _is_evidence(trial: TrialView) -> bool:
    """Whether it has succeeded with a value, or was ended early as worse than others."""
    if trial.value is None or math.isnan(trial.value):
        return False
    return trial.state == "Succeeded" or _ended_early(trial)


def _ended_early(trial: TrialView) -> bool:
    return trial.state == "Stopped" and trial.reason == "StoppedEarly"


class _Distribution:
    """The distribution of new trials, after some of the ended ones. Each axis is a parameter, as
    shares of its range."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._axes = axes(search.space)
        self._folded: list[TrialView] = []
        self._restarts = 0
        """How often it has started again."""
        self._cma = self._new(np.full(len(self._axes), 0.5))

    def is_of(self, search: Search, ended: list[TrialView]) -> bool:
        """Whether it belongs to this search, and has folded only the first of these trials."""
        one, other = self._search, search
        same = (one.space, one.seed, one.objective.goal)
        if same != (other.space, other.seed, other.objective.goal):
            return False
        first = ended[: len(self._folded)]
        return len(first) == len(self._folded) and all(map(operator.is_, first, self._folded))

    def fold(self, ended: list[TrialView]) -> None:
        """Fold each complete block that is new."""
        size = self._cma.population_size
        while len(ended) - len(self._folded) >= size:
            block = ended[len(self._folded) : len(self._folded) + size]
            self._tell(block)
            self._folded += block

    def drawn(self, number: int) -> dict[str, float]:
        """A share of the range for each parameter, for the trial of this number."""
        self._cma.reseed_rng(seed_of(self._search.seed, number))
        names = (name for name, _ in self._axes)
        point = (min(float(share), BELOW_ONE) for share in self._cma.ask())
        return dict(zip(names, point, strict=True))

    def _tell(self, block: list[TrialView]) -> None:
        """Only the order of values matters to CMA-ES, so it gets ranks."""
        points = [self._point(trial) for trial in self._best_first(block)]
        self._cma.tell([(np.array(point), float(at)) for at, point in enumerate(points)])
        if len(set(points)) == 1 or self._cma.should_stop():
            self._restart()

    def _best_first(self, block: list[TrialView]) -> Iterable[TrialView]:
        """Sort the block; trials that were ended early come after all others: they were worse."""
        sign = 1 if self._search.objective.goal == "minimize" else -1
        return sorted(block, key=lambda trial: (_ended_early(trial), sign * (trial.value or 0.0)))

    def _restart(self) -> None:
        """Start again from a random point, since the distribution is one point or useless."""
        self._restarts += 1
        seed, at = self._search.seed, -self._restarts  # no trial has a number below 0
        self._cma = self._new(np.array([share(seed, at, name) for name, _ in self._axes]))

    def _new(self, middle: NDArray[np.float64]) -> CMA:
        count = len(self._axes)
        bounds = np.array([[0.0, 1.0]] * count)
        # As in Optuna: tries to draw a point within the bounds before it is moved onto them.
        return CMA(mean=middle, sigma=WIDTH, bounds=bounds, n_max_resampling=10 * count)

    def _point(self, trial: TrialView) -> tuple[float, ...]:
        return tuple(domain.share_of(float(trial.params[name])) for name, domain in self._axes)


def axes(space: Iterable[Parameter]) -> list[tuple[str, FloatRange | IntRange]]:
    """What CMA-ES can search: numbers that every trial has, with more than one value."""
    return [
        (parameter.name, parameter.domain)
        for parameter in space
        if isinstance(parameter.domain, FloatRange | IntRange)
        if parameter.domain.low < parameter.domain.high and not parameter.when
    ]
