"""What is searched: parameters, the values that each may take, and when it is there at all.

Layer: pure. Invariants: parameters are looked at in their declared order, and `when` speaks only of
those before; a value that is drawn is always one of the domain, whatever rounding does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

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
