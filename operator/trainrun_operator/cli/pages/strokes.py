"""A curve as the data of an SVG path.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Place = tuple[float, float]
"""x and y in the picture."""


def stroke(places: Iterable[Place | None]) -> str:
    """One line, broken where a place is None."""
    return " ".join(_drawn(places))


def _drawn(places: Iterable[Place | None]) -> Iterator[str]:
    pen = "M"
    for place in places:
        if place is None:
            pen = "M"
            continue
        x, y = place
        yield f"{pen}{x:.1f} {y:.1f}"
        if pen == "M":
            yield f"L{x:.1f} {y:.1f}"  # a single point is a dot
        pen = "L"
