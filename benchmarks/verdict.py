"""Holds figures against what they must reach; a benchmark that misses a bound exits with 1."""

from __future__ import annotations

import sys

_MISSED: list[str] = []
"""What was missed so far, each with its figure and its bound."""


def must(what: str, value: float, limit: float, unit: str = "", *, least: bool = False) -> str:
    """The bound as it is printed behind a figure. A miss is remembered for `end`.

    `limit` is the largest good value, with `least` the smallest; a value may equal it.
    """
    bound = f"must be at {'least' if least else 'most'} {limit:g} {unit}".rstrip()
    if value < limit if least else value > limit:
        _MISSED.append(f"{what} was {value:.4g} and {bound}")
    return f"({bound})"


def end() -> None:
    """Exit with 1 and name what was missed, if anything was."""
    if _MISSED:
        sys.exit(f"Missed: {'; '.join(_MISSED)}.")
