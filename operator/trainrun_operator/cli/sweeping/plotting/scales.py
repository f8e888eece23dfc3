"""Where a value lies on an axis, and what stands beside the axis.

Layer: cli; pure. A place on an axis is a share of it, from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from trainrun.sweep.search import Goal
from trainrun.sweep.space import Domain, FloatRange, IntRange, OneOf, Scalar, same
from trainrun_operator.cli import wording
from trainrun_operator.core.sweep.trial import as_text

LONGEST_LABEL = 12
"""Characters of an option beside an axis."""
SMALLEST_SPAN = 1e-300
"""Of an axis with round numbers beside it: below it floats are not what they seem."""
FAR = 3.0
"""Times the distance of the quartiles beyond which a value is far from all others."""

Tick = tuple[float, str]
"""Its share of the axis, and what stands there."""


class Scale(Protocol):
    """One axis."""

    def at(self, value: Scalar) -> float | None:
        """The share at which this value lies; None: it has no place on this axis."""

    def ticks(self, most: int) -> list[Tick]:
        """So many at most, at least two of them where there are two values."""


@dataclass(frozen=True)
class Numbers:
    """From one number to another. What lies beyond them has its place at the end."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def at(self, value: Scalar) -> float | None:
        """See `Scale`. What is no finite number has no place."""
        if isinstance(value, str) or not math.isfinite(value) or (self.log and value <= 0):
            return None
        low, high = self._measured(self.low), self._measured(self.high)
        if low == high:
            return 0.5
        return min(1.0, max(0.0, (self._measured(value) - low) / (high - low)))

    def ticks(self, most: int) -> list[Tick]:
        """See `Scale`."""
        inside = self._round_numbers(most)
        shown = inside if len(inside) > 1 else sorted({self.low, self.high})
        digits = ".10g" if len(inside) > 1 else ".4g"
        return [(self.at(it) or 0.0, f"{it:,{digits}}") for it in shown]

    def _measured(self, value: float) -> float:
        # Halves: the difference of two large numbers may be none.
        return math.log(value) if self.log else value / 2

    def _round_numbers(self, most: int) -> list[float]:
        if not SMALLEST_SPAN < self.high - self.low < math.inf:
            return []
        if not self.log:
            return [it for it in self._multiples(most) if self.low <= it <= self.high]
        inside = self._powers((1, 2, 5))
        if len(inside) > most:
            inside = self._powers((1,))
        return inside[:: math.ceil(len(inside) / most) or 1]

    def _powers(self, digits: tuple[int, ...]) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        every = [digit * 10.0**power for power in powers for digit in digits]
        return [it for it in every if self.low <= it <= self.high]

    def _multiples(self, most: int) -> Iterator[float]:
        rough = (self.high - self.low) / (most - 1)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(it * power for it in (1, 2, 5, 10) if it * power >= rough)
        step = max(step, 1.0) if self.whole else step
        for count in range(math.ceil(self.low / step), math.floor(self.high / step) + 1):
            yield float(f"{count * step:.12g}")  # 3 * 0.1 is meant to be 0.3


@dataclass(frozen=True)
class Options:
    """A few values side by side."""

    values: tuple[Scalar, ...]

    def at(self, value: Scalar) -> float | None:
        """See `Scale`."""
        places = (place for place, it in enumerate(self.values) if same(it, value))
        place = next(places, None)
        return None if place is None else (place + 0.5) / len(self.values)

    def ticks(self, most: int) -> list[Tick]:
        """See `Scale`; of many options every so many have their name."""
        labels = [wording.shortened(as_text(it), LONGEST_LABEL) for it in self.values]
        ticks = [((place + 0.5) / len(labels), it) for place, it in enumerate(labels)]
        return ticks[:: math.ceil(len(ticks) / most)]


def scale_of(domain: Domain) -> Scale:
    """The axis of a parameter."""
    match domain:
        case FloatRange(low, high, log):
            return Numbers(low, high, log=log)
        case IntRange(low, high, log):
            return Numbers(low, high, log=log, whole=True)
        case OneOf(options):
            return Options(options)


def scale_of_values(worst: Iterable[float], *, best: float, goal: Goal) -> Numbers:
    """The axis of the objective, from the best of all values to the worst ones; all are finite.

    It ends before those of the worst ones that are so far from the others that these would have
    less than half of it.
    """
    told = sorted(worst)
    first, third = told[len(told) // 4], told[3 * len(told) // 4]
    reach = FAR * (third - first)
    if goal == "minimize":
        near = max(it for it in told if it <= third + reach)
        return Numbers(best, near if 0 < 2 * (near - best) < told[-1] - best else told[-1])
    near = min(it for it in told if it >= first - reach)
    return Numbers(near if 0 < 2 * (best - near) < best - told[0] else told[0], best)
