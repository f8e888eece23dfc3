"""How much each parameter of a sweep matters, by itself.

Layer: cli; pure. The trials are ranked by their values, and grouped by the parameter. Adjusted
R squared of the ranks: the share of their variance that the groups explain, corrected for what
groups without any meaning would explain. Ranks, so that one diverged value decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from trainrun.sweep.search import Scalar
from trainrun.sweep.view import TrialView

LEAST = 10
"""Trials with a value below which nothing is told."""
MOST_GROUPS, LEAST_IN_GROUP = 5, 4
"""Groups of a numeric parameter at most, and trials in each of them at least."""

Ranked = tuple[Scalar, int]
"""Value of a parameter, and the trial's place among all."""


def importances(trials: Iterable[TrialView], names: Iterable[str]) -> dict[str, float]:
    """From 0 to 1 for each parameter, the greatest first; empty: too few trials have a value."""
    valued = [t for t in trials if t.value is not None and math.isfinite(t.value)]
    if len(valued) < LEAST:
        return {}
    ordered = sorted(valued, key=lambda trial: trial.value or 0.0)
    found = {}
    for name in names:
        ranked = [(t.params[name], place) for place, t in enumerate(ordered) if name in t.params]
        found[name] = _explained(_groups(ranked))
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _groups(ranked: Sequence[Ranked]) -> list[list[int]]:
    """Places of the trials with the same value, or with close numbers where those are many."""
    different = {value for value, _ in ranked}
    if len(different) <= MOST_GROUPS or not all(_is_number(value) for value in different):
        return [[place for value, place in ranked if value == one] for one in different]
    by_value = [place for _, place in sorted(ranked, key=lambda pair: float(pair[0]))]
    parts = min(MOST_GROUPS, len(by_value) // LEAST_IN_GROUP)
    cuts = [len(by_value) * part // parts for part in range(parts + 1)]
    return [by_value[cuts[part] : cuts[part + 1]] for part in range(parts)]


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _explained(groups: Sequence[Sequence[int]]) -> float:
    places = [place for group in groups for place in group]
    inside, freedom = len(places) - len(groups), len(places) - 1
    if inside <= 0:
        return 0.0
    whole, left = _spread(places), sum(map(_spread, groups))
    return max(1 - (left / inside) / (whole / freedom), 0.0)


def _spread(places: Sequence[int]) -> float:
    """The sum of the squares of the distances from their mean."""
    mean = sum(places) / len(places)
    return sum((place - mean) ** 2 for place in places)
