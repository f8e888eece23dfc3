"""The curves over each other in a terminal: dots of braille for the undisturbed run, a letter for
each run that is somewhere else.

Layer: cli; pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from string import ascii_lowercase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.series import Picture, Series

WIDTH, HEIGHT = 64, 12
"""Characters."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a character of braille, by row and column."""
BRAILLE = 0x2800


def drawn(picture: Picture) -> Iterator[str]:
    """Its lines."""
    control, *runs = picture.series
    cells = {place: chr(BRAILLE + bits) for place, bits in _dots(picture, control).items()}
    marked = []
    for letter, run in zip(ascii_lowercase, runs, strict=False):
        away = set(_dots(picture, run)) - set(_dots(picture, control))
        marked.append(f"{letter} {run.name}" + ("" if away else " (on it)"))
        cells |= dict.fromkeys(away, letter)
    (low, high), (first, last) = picture.values, picture.steps
    yield f"  {picture.metric}"
    for row in range(HEIGHT):
        label = {0: f"{high:.4g}", HEIGHT - 1: f"{low:.4g}"}.get(row, "")
        line = "".join(cells.get((row, column), " ") for column in range(WIDTH))
        yield f"{label:>9} │{line}".rstrip()
    yield f"{'':>9} └{'─' * WIDTH}"
    yield f"{'':>11}{f'step {first}':<{WIDTH - 8}}{last:>8}"
    yield from _legend(["⠒ undisturbed", *marked])


def _dots(picture: Picture, series: Series) -> dict[tuple[int, int], int]:
    """Bits by (row, column); between two points a straight line."""
    (low, high), (first, last) = picture.values, picture.steps
    wide, tall = 2 * WIDTH - 1, 4 * HEIGHT - 1
    found: dict[tuple[int, int], int] = {}
    places = [
        (
            round((step - first) / max(last - first, 1) * wide),
            round((high - value) / (high - low) * tall),
        )
        for step, value in series.points
    ]
    for x, y in _between(places):
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
        if line and len(line) + len(entry) > WIDTH:
            yield f"{'':>11}{line}"
            line = ""
        line += ("   " if line else "") + entry
    yield f"{'':>11}{line}"
