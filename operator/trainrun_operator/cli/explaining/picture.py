"""A metric as a picture: the curves of all attempts over one axis of steps.

Layer: cli; pure. Inline SVG that takes any width; what is to be read stands beside it as text, so
that it has its size on a phone, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from trainrun_operator.cli.pages.strokes import stroke

if TYPE_CHECKING:
    from trainrun_operator.cli.pages.curve import Point

WIDTH = 1000
HEIGHT = 200
COLORS = 6
"""Classes c0 to c5 of the style, used again from the seventh attempt on."""


def svg(curves: Mapping[int, list[Point]], colors: Mapping[int, int]) -> str:
    """The picture, each attempt in its color; empty where no value is a finite number."""
    bounds = _bounds(curves)
    if bounds is None:
        return ""
    paths = "".join(
        f'<path class="c{colors[attempt]}" d="{stroke(_places(points, bounds))}"/>'
        for attempt, points in curves.items()
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f"{paths}</svg>"
    )


def limits(curves: Mapping[int, list[Point]]) -> tuple[str, str, str, str]:
    """Lowest and highest value, first and last step, in words; empty where there are none."""
    bounds = _bounds(curves)
    if bounds is None:
        return "", "", "", ""
    low, high, first, last = bounds
    return f"{low:.4g}", f"{high:.4g}", f"{first:,}", f"{last:,}"


def no_numbers(curves: Mapping[int, list[Point]]) -> Iterator[str]:
    """Where a metric was no finite number first, in each attempt."""
    for attempt, points in curves.items():
        wrong = next(((step, value) for step, value in points if not math.isfinite(value)), None)
        if wrong is not None:
            step, value = wrong
            kind = "NaN" if math.isnan(value) else "infinite"
            yield f"{kind} at step {step:,} of attempt {attempt}"


def _bounds(curves: Mapping[int, list[Point]]) -> tuple[float, float, int, int] | None:
    points = [point for found in curves.values() for point in found if math.isfinite(point[1])]
    if not points:
        return None
    values, steps = [value for _, value in points], [step for step, _ in points]
    return min(values), max(values), min(steps), max(steps)


def _places(
    points: list[Point], bounds: tuple[float, float, int, int]
) -> Iterator[tuple[float, float] | None]:
    low, high, first, last = bounds
    for step, value in points:
        if not math.isfinite(value):
            yield None
            continue
        # Halves first: the difference of two large numbers may be none.
        height = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5
        yield WIDTH * (step - first) / max(last - first, 1), HEIGHT - HEIGHT * height
