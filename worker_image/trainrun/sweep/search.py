"""A sweep's search: space, sampler, objective; all that the clerk needs to know of the spec.

Layer: pure. Invariants: parameters are chosen in their declared order, and `when` refers only to
earlier ones; a drawn value always lies in the domain, whatever rounding does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

SamplerName = Literal["Random", "Grid", "TPE", "CmaEs", "QMC"]
Goal = Literal["minimize", "maximize"]
ValueOf = Literal["last", "best"]
Scalar = bool | int | float | str
"""A parameter's value."""

_ROUNDING = 1e-9
"""Tolerance of (high - low) / step: 0.3 / 0.1 must count as 3."""


@dataclass(frozen=True)
class FloatRange:
    """Real numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    """Drawn evenly by magnitude."""
    step: float | None = None
    """Only low, low + step, ... up to high."""

    def points(self) -> tuple[Scalar, ...]:
        """Every value. Raises ValueError without a step."""
        if self.step is None:
            raise ValueError("a range of real numbers without a step cannot be listed")
        count = _count(self.low, self.high, self.step)
        # By multiplication, so that errors do not add up; round() makes 0.1 + 2 * 0.1 equal 0.3.
        return tuple(min(self.high, round(self.low + at * self.step, 12)) for at in range(count))

    def at(self, share: float) -> Scalar:
        """The value at this share (0 <= share < 1) of the range."""
        if self.step is not None:
            return _pick(self.points(), share)
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return _clamp(math.exp(low + share * (high - low)), self.low, self.high)
        return _clamp(self.low + share * (self.high - self.low), self.low, self.high)

    def share_of(self, value: float) -> float:
        """The share of this value, 0 to 1: the middle of the shares for which `at` returns it."""
        if self.step is not None:
            return ((value - self.low) / self.step + 0.5) / _count(self.low, self.high, self.step)
        if self.log:
            return _between(math.log(value), math.log(self.low), math.log(self.high))
        return _between(value, self.low, self.high)


@dataclass(frozen=True)
class IntRange:
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False
    """Drawn evenly by magnitude."""
    step: int = 1
    """Only low, low + step, ... up to high."""

    def points(self) -> tuple[Scalar, ...]:
        """Every value."""
        return tuple(range(self.low, self.high + 1, self.step))

    def at(self, share: float) -> Scalar:
        """The value at this share (0 <= share < 1) of the range."""
        if not self.log:
            count = (self.high - self.low) // self.step + 1
            return self.low + int(share * count) * self.step
        low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
        return int(_clamp(round(math.exp(low + share * (high - low))), self.low, self.high))

    def share_of(self, value: float) -> float:
        """The share of this value, 0 to 1: the middle of the shares for which `at` returns it."""
        if not self.log:
            count = (self.high - self.low) // self.step + 1
            return ((value - self.low) / self.step + 0.5) / count
        return _between(math.log(value), math.log(self.low - 0.5), math.log(self.high + 0.5))


@dataclass(frozen=True)
class OneOf:
    """One of a list of options."""

    options: tuple[Scalar, ...]

    def points(self) -> tuple[Scalar, ...]:
        """Every value."""
        return self.options

    def at(self, share: float) -> Scalar:
        """The value at this share (0 <= share < 1) of the list."""
        return _pick(self.options, share)


Domain = FloatRange | IntRange | OneOf


@dataclass(frozen=True)
class Parameter:
    """One dimension of the space."""

    name: str
    domain: Domain
    when: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()
    """It applies only if each of these parameters has one of these values."""

    def applies(self, chosen: Mapping[str, Scalar]) -> bool:
        """Whether it applies, given the parameters chosen before it."""
        return all(
            name in chosen and any(same(chosen[name], value) for value in values)
            for name, values in self.when
        )


def choose(space: Iterable[Parameter], pick: Callable[[Parameter], Scalar]) -> dict[str, Scalar]:
    """Ask `pick` for each parameter that applies, in order."""
    chosen: dict[str, Scalar] = {}
    for parameter in space:
        if parameter.applies(chosen):
            chosen[parameter.name] = pick(parameter)
    return chosen


def same(one: Scalar, other: Scalar) -> bool:
    """Whether two values are the same for a user: 1 and 1.0 are, 1 and true are not."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def same_params(one: Mapping[str, Scalar], other: Mapping[str, Scalar]) -> bool:
    """Whether two trials have the same parameters for a user."""
    # The fast comparison comes first: a log of 1,000 trials has half a million such pairs.
    return one == other and all(same(one[name], other[name]) for name in one)


def _pick(points: tuple[Scalar, ...], share: float) -> Scalar:
    return points[int(share * len(points))]


def _count(low: float, high: float, step: float) -> int:
    return math.floor((high - low) / step + _ROUNDING) + 1


def _between(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _clamp(value: float, low: float, high: float) -> float:
    return max(low, min(high, value))


@dataclass(frozen=True)
class Asha:
    """Asynchronous successive halving: at each rung only the best part of the trials that have
    reached it continues."""

    min_resource: int = 1
    """Step of the first rung."""
    reduction_factor: int = 4
    """One in this many trials continues, and the next rung is this many times as far."""
    skipped: int = 0
    """Number of first rungs without judgement."""


@dataclass(frozen=True)
class Hyperband:
    """Several ASHAs, each of which begins to judge later, so that trials that learn slowly get a
    chance too. Each trial belongs to one of them."""

    max_resource: int
    """Steps of a full trial."""
    min_resource: int = 1
    reduction_factor: int = 3


@dataclass(frozen=True)
class Percentile:
    """Ends a trial whose best value so far is worse than this percentile of the values of succeeded
    trials at the same step."""

    percentile: float = 50.0
    """Percentile of the best: 25 ends three of four. 50: the median."""
    startup_trials: int = 5
    """Trials that must have succeeded before any trial is ended."""
    warmup_steps: int = 0
    interval_steps: int = 1
    """Steps between two judgements."""
    min_trials: int = 1
    """Trials that must have reported the step."""


@dataclass(frozen=True)
class Threshold:
    """Ends a trial whose value is beyond these bounds, or is not a number."""

    lower: float = -math.inf
    upper: float = math.inf
    warmup_steps: int = 0
    interval_steps: int = 1


EarlyStopping = Asha | Hyperband | Percentile | Threshold


@dataclass(frozen=True)
class Objective:
    """The metric to minimize or maximize."""

    metric: str
    goal: Goal = "minimize"
    value: ValueOf = "last"
    """Which value counts for a trial: that of the last step, or the best one."""
    target: float | None = None
    """The search is over once a trial's own value is as good as this."""
    stop_on_nan: bool = True
    """Two steps whose value is not a number end a trial."""

    def better(self, one: float, other: float) -> bool:
        """Whether `one` is strictly better; not a number is better than nothing."""
        if math.isnan(one) or math.isnan(other):
            return False
        return one < other if self.goal == "minimize" else one > other

    def reached(self, value: float) -> bool:
        """Whether `value` is as good as the target."""
        if self.target is None or math.isnan(value):
            return False
        return not self.better(self.target, value)

    def best(self, values: Iterable[float]) -> float | None:
        """The best of the values, the first among equals; None if none is a number."""
        numbers = [value for value in values if not math.isnan(value)]
        if not numbers:
            return None
        return min(numbers) if self.goal == "minimize" else max(numbers)


@dataclass(frozen=True)
class Search:
    """The immutable part of a sweep, as the clerk needs it."""

    space: tuple[Parameter, ...]
    objective: Objective
    sampler: SamplerName = "Random"
    seed: int = 0
    first: tuple[dict[str, Scalar], ...] = ()
    """Parameters of the first trials; missing ones are drawn."""
    fixed: tuple[tuple[str, Scalar], ...] = ()
    """Parameters with the same value in every trial."""
    early_stopping: EarlyStopping | None = None
    """The rule that ends trials early; it may change."""
