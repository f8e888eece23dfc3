"""The parameters of trial k: drawn at random, or the k-th point of a grid.

Layer: pure. The same seed and number give the same parameters, on any machine and in any version of
Python: the randomness is SHA-256. Each parameter is drawn independently, so one that does not apply
changes no other.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainrun.sweep.search import Parameter, Scalar, Search, choose
from trainrun.sweep.view import SweepView


@dataclass(frozen=True)
class Suggestion:
    """Parameters for the next trial, without the fixed ones."""

    params: Mapping[str, Scalar]
    study: Mapping[str, Any] = field(default_factory=dict)
    """See `trainrun.sweep.records.Ask`."""
    fallback: str = ""


def by_chance(view: SweepView, search: Search) -> Suggestion:
    """Parameters by the sampler Random or Grid, which ignore the results of other trials."""
    return Suggestion(ask(search, view.asked))


def ask(search: Search, number: int) -> dict[str, Scalar]:
    """The parameters of trial `number` (from 0), without the fixed ones.

    Raises IndexError where a grid has no such point.
    """
    if search.sampler == "Grid":
        return _grid_point(search, number)
    given = search.first[number] if number < len(search.first) else {}

    def pick(parameter: Parameter) -> Scalar:
        if parameter.name in given:
            return given[parameter.name]
        return by_lot(parameter, search.seed, number)

    return choose(search.space, pick)


def by_lot(parameter: Parameter, seed: int, number: int) -> Scalar:
    """The random value of this parameter in trial `number`."""
    return parameter.domain.at(share(seed, number, parameter.name))


def seed_of(seed: int, number: int) -> int:
    """The seed of a sampler's library for trial `number`, from 0 to 2^32 - 1."""
    digest = hashlib.sha256(f"{seed}:{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def grid_size(space: tuple[Parameter, ...]) -> int:
    """The number of points of a grid."""
    return math.prod(len(parameter.domain.points()) for parameter in space)


def _grid_point(search: Search, number: int) -> dict[str, Scalar]:
    """Digits of a number in a mixed base: the last parameter changes fastest."""
    rest = _order(grid_size(search.space), search.seed)[number]
    point: dict[str, Scalar] = {}
    for parameter in reversed(search.space):
        points = parameter.domain.points()
        rest, digit = divmod(rest, len(points))
        point[parameter.name] = points[digit]
    return {parameter.name: point[parameter.name] for parameter in search.space}


@functools.lru_cache(maxsize=8)
def _order(size: int, seed: int) -> tuple[int, ...]:
    return tuple(sorted(range(size), key=lambda point: share(seed, point, "")))


def share(seed: int, number: int, name: str) -> float:
    """A uniform random number, 0 <= share < 1, with all bits of a float."""
    digest = hashlib.sha256(f"{seed}:{number}:{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53
