"""What a sweep searches, by whom and for what: all that the clerk has to know of the spec.

Layer: pure. Invariants: parameters are looked at in their declared order, and `when` speaks only of
those before; a value that is drawn is always one of the domain, whatever rounding does.
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
"""Of (high - low) / step: 0.3 / 0.1 is meant to be 3."""


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
        # By multiplication, so that errors do not add up; round() makes 0.1 + 2 * 0.1 what it says.
        return tuple(min(self.high, round(self.low + at * self.step, 12)) for at in range(count))

    def at(self, share: float) -> Scalar:
        """The value that stands at this share (0 <= share < 1) of the range."""
        if self.step is not None:
            return _pick(self.points(), share)
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return _clamp(math.exp(low + share * (high - low)), self.low, self.high)
        return _clamp(self.low + share * (self.high - self.low), self.low, self.high)

    def share_of(self, value: float) -> float:
        """Where this value stands in the range, 0 to 1: in the middle of what `at` makes it of."""
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
        """The value that stands at this share (0 <= share < 1) of the range."""
        if not self.log:
            count = (self.high - self.low) // self.step + 1
            return self.low + int(share * count) * self.step
        low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
        return int(_clamp(round(math.exp(low + share * (high - low))), self.low, self.high))

    def share_of(self, value: float) -> float:
        """Where this value stands in the range, 0 to 1: in the middle of what `at` makes it of."""
        if not self.log:
            count = (self.high - self.low) // self.step + 1
            return ((value - self.low) / self.step + 0.5) / count
        return _between(math.log(value), math.log(self.low - 0.5), math.log(self.high + 0.5))


@dataclass(frozen=True)
class OneOf:
    """One of these."""

    options: tuple[Scalar, ...]

    def points(self) -> tuple[Scalar, ...]:
        """Every value."""
        return self.options

    def at(self, share: float) -> Scalar:
        """The value that stands at this share (0 <= share < 1) of the list."""
        return _pick(self.options, share)


Domain = FloatRange | IntRange | OneOf


@dataclass(frozen=True)
class Parameter:
    """One dimension of the space."""

    name: str
    domain: Domain
    when: tuple[tuple[str, tuple[Scalar, ...]], ...] = ()
    """It is there only where each of these parameters has one of these values."""

    def applies(self, chosen: Mapping[str, Scalar]) -> bool:
        """Whether it is there beside what was chosen before it."""
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
    """Whether two values are the same to a user: 1 and 1.0 are, 1 and true are not."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def same_params(one: Mapping[str, Scalar], other: Mapping[str, Scalar]) -> bool:
    """Whether two trials have the same parameters to a user."""
    # Compared as they are first: a log of 1,000 trials has half a million of such pairs.
    return one == other and all(same(one[it], other[it]) for it in one)


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
    """Asynchronous successive halving: at each rung only the best part of those that have got so
    far goes on."""

    min_resource: int = 1
    """Step of the first rung."""
    reduction_factor: int = 4
    """Of so many one goes on; and the next rung is so many times as far."""
    skipped: int = 0
    """Rungs at the beginning that nobody is judged at."""


@dataclass(frozen=True)
class Hyperband:
    """Several ASHAs side by side, which begin to judge later and later: who learns slowly gets a
    chance, too. Each trial belongs to one of them."""

    max_resource: int
    """Steps of a whole trial."""
    min_resource: int = 1
    reduction_factor: int = 3


@dataclass(frozen=True)
class Percentile:
    """Its best value so far is worse than this percentile of those of trials that have succeeded,
    at the same step."""

    percentile: float = 50.0
    """Of the best ones: 25 ends three of four. 50: the median."""
    startup_trials: int = 5
    """Trials that have to have succeeded before anything is ended."""
    warmup_steps: int = 0
    interval_steps: int = 1
    """Judged once in so many steps."""
    min_trials: int = 1
    """Trials that have to have reported the step."""


@dataclass(frozen=True)
class Threshold:
    """A value beyond these bounds, or that is no number."""

    lower: float = -math.inf
    upper: float = math.inf
    warmup_steps: int = 0
    interval_steps: int = 1


EarlyStopping = Asha | Hyperband | Percentile | Threshold


@dataclass(frozen=True)
class Objective:
    """The metric that counts, and what of it."""

    metric: str
    goal: Goal = "minimize"
    value: ValueOf = "last"
    """Which of a trial's values is its own: that of the last step, or the best one."""
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
        """The best of them, the first among equals; None where none is a number."""
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
    """Tried first; what one of them does not say is drawn."""
    fixed: tuple[tuple[str, Scalar], ...] = ()
    """Handed to every trial."""
    early_stopping: EarlyStopping | None = None
    """By which trials are ended before their time; it may change."""
