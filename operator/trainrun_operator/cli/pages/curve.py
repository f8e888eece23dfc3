"""A curve thinned to what a picture can show.

Layer: cli; pure. Bounded whatever was reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

MOST_POINTS = 300
"""Points of one curve in a picture."""

Point = tuple[int, float]
"""Step and value; the value may be no finite number."""


@dataclass(slots=True)
class Curve:
    """One metric in one attempt. Every so many reports are kept, and always the last one."""

    _kept: list[Point] = field(default_factory=list)
    _every: int = 1
    _seen: int = 0
    _last: Point | None = None

    def add(self, step: int, value: float) -> None:
        """The next report."""
        self._last = (step, value)
        if self._seen % self._every == 0 or not math.isfinite(value):
            self._kept.append(self._last)
        self._seen += 1
        if len(self._kept) >= 2 * MOST_POINTS:
            self._kept = self._kept[::2]
            self._every *= 2

    @property
    def points(self) -> list[Point]:
        """At most MOST_POINTS and one."""
        step = -(-len(self._kept) // MOST_POINTS) or 1
        kept = self._kept[::step]
        return kept if self._last is None or kept[-1:] == [self._last] else [*kept, self._last]
