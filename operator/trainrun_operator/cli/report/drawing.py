"""Curves as pictures: SVG on a page, braille in a terminal.

Layer: cli; pure. The SVG takes any width; its labels are text next to it, so they stay readable on
a phone. The run that others are compared with is drawn thick and below them, so that equal curves
visibly lie on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from string import ascii_lowercase

from trainrun_operator.cli.report.model import Curves, Point

MOST_POINTS = 300
"""Points of one curve in a picture, at most."""
COLORS = 11
"""Colors of the style; more runs than that get colors along the rainbow."""
WIDE, TALL = 1000, 200
"""Size of an SVG, in its own units."""
COLUMNS, ROWS = 64, 12
"""Size of a picture in a terminal, in characters."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a character of braille, by row and column."""
BRAILLE = 0x2800


@dataclass(slots=True)
class Downsampled:
    """A curve thinned to what a picture can show: every n-th report, and always the last one."""

    most: int = MOST_POINTS
    _thinned: list[Point] = field(default_factory=list)
    _every: int = 1
    _count: int = 0
    _last: Point | None = None

    def add(self, step: int, value: float) -> None:
        """Add the next report."""
        self._last = (step, value)
        if self._count % self._every == 0 or not math.isfinite(value):
            self._thinned.append(self._last)
        self._count += 1
        if len(self._thinned) >= 2 * self.most:
            self._thinned = self._thinned[::2]
            self._every *= 2

    @property
    def points(self) -> list[Point]:
        """At most `most` + 1 points."""
        step = -(-len(self._thinned) // self.most) or 1
        points = self._thinned[::step]
        return (
            points if self._last is None or points[-1:] == [self._last] else [*points, self._last]
        )


@dataclass(frozen=True, slots=True)
class PlotArea:
    """The range of the finite numbers in a picture."""

    low: float
    high: float
    first: int
    last: int

    def place(self, point: Point) -> tuple[float, float]:
        """Position of a point, from 0 to 1, from the left and from the top."""
        step, value = point
        # Halve first: the difference of two large numbers may overflow.
        flat = self.high == self.low
        height = 0.5 if flat else (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return (step - self.first) / max(self.last - self.first, 1), 1 - height


def frame(picture: Mapping[int, Sequence[Point]]) -> PlotArea | None:
    """The range to draw; None if no value is a finite number."""
    points = [point for curve in picture.values() for point in curve if math.isfinite(point[1])]
    if not points:
        return None
    steps, values = zip(*points, strict=True)
    return PlotArea(min(values), max(values), min(steps), max(steps))


def no_numbers(curves: Curves, metric: str) -> Iterator[str]:
    """Where a metric first was not a finite number, in each run."""
    for run, points in curves.pictures[metric].items():
        wrong = next((point for point in points if not math.isfinite(point[1])), None)
        if wrong is not None:
            kind = "NaN" if math.isnan(wrong[1]) else "infinite"
            yield f"{kind} at step {wrong[0]:,} of {curves.names[run]}"


def painted(run: int, of: int, *classes: str, attribute: str = "stroke") -> str:
    """Attributes that give an element of an SVG these classes and the color of a run, by its
    position among `of` runs: no two runs share one. Without inline styles: a strict policy of a
    page forbids them."""
    few = of <= COLORS
    names = (f"c{run}", *classes) if few else classes
    own = "" if few else f' {attribute}="hsl({300 * run / (of - 1):.0f} 75% 45%)"'
    return f'class="{" ".join(names)}"{own}'


def svg(picture: Mapping[int, Sequence[Point]], *, compared: bool, of: int = COLORS) -> str:
    """An `svg` element; empty if no value is a finite number. If `compared`, a dot marks where a
    run resumed; `of`: number of runs."""
    area = frame(picture)
    if area is None:
        return ""
    paths = "".join(
        f"<path {painted(run, of, *(['thick'] * (compared and not run)))} "
        f'd="{_stroke(points, area)}"/>'
        + (_dot(painted(run, of, "dot"), points, area) if compared and run else "")
        for run, points in sorted(picture.items())
    )
    return (
        f'<svg viewBox="0 0 {WIDE} {TALL}" preserveAspectRatio="none" aria-hidden="true">'
        f"{paths}</svg>"
    )


def _dot(paint: str, points: Sequence[Point], area: PlotArea) -> str:
    return f'<path {paint} d="{_stroke(points[:1], area)}"/>'


def _stroke(points: Sequence[Point], area: PlotArea) -> str:
    """One line, broken where a value is not a number; a single point is a dot."""
    drawn, pen = [], "M"
    for point in points:
        if not math.isfinite(point[1]):
            pen = "M"
            continue
        x, y = area.place(point)
        place = f"{WIDE * x:.1f} {TALL * y:.1f}"
        drawn.append(f"M{place} L{place}" if pen == "M" else f"L{place}")
        pen = "L"
    return " ".join(drawn)


def braille(curves: Curves) -> Iterator[str]:
    """Dots for the first run, and a letter for each other run where it differs."""
    for metric, picture in curves.pictures.items():
        area = frame(picture)
        if area is not None:
            yield from _drawn(metric, curves, area)


def _drawn(metric: str, curves: Curves, area: PlotArea) -> Iterator[str]:
    picture, names = curves.pictures[metric], curves.names
    first, *others = sorted(picture)
    dots = _dots(picture[first], area)
    cells = {place: chr(BRAILLE + bits) for place, bits in dots.items()}
    marked = [f"⠒ {names[first]}"]
    for letter, run in zip(ascii_lowercase, others, strict=False):
        away = _dots(picture[run], area).keys() - dots.keys()
        marked.append(f"{letter} {names[run]}" + ("" if away else " (on it)"))
        cells |= dict.fromkeys(away, letter)
    yield f"  {metric}"
    for row in range(ROWS):
        label = {0: f"{area.high:.4g}", ROWS - 1: f"{area.low:.4g}"}.get(row, "")
        line = "".join(cells.get((row, column), " ") for column in range(COLUMNS))
        yield f"{label:>9} │{line}".rstrip()
    yield f"{'':>9} └{'─' * COLUMNS}"
    yield f"{'':>11}{f'{curves.along} {area.first}':<{COLUMNS - 8}}{area.last:>8}"
    yield from _legend(marked)


def _dots(points: Sequence[Point], area: PlotArea) -> dict[tuple[int, int], int]:
    """Bits by (row, column); straight lines join the points."""
    found: dict[tuple[int, int], int] = {}
    places = [area.place(point) for point in points if math.isfinite(point[1])]
    wide, tall = 2 * COLUMNS - 1, 4 * ROWS - 1
    for x, y in _between([(round(wide * x), round(tall * y)) for x, y in places]):
        place = (y // 4, x // 2)
        found[place] = found.get(place, 0) | DOTS[y % 4][x % 2]
    return found


def _between(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    yield from places[:1]
    for (x, y), (to_x, to_y) in pairwise(places):
        for x_now in range(x + 1, to_x + 1):
            yield x_now, round(y + (to_y - y) * (x_now - x) / (to_x - x))


def _legend(entries: list[str]) -> Iterator[str]:
    line = ""
    for entry in entries:
        if line and len(line) + len(entry) > COLUMNS:
            yield f"{'':>11}{line}"
            line = ""
        line += ("   " if line else "") + entry
    yield f"{'':>11}{line}"
