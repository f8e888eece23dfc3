"""What rank 0 has reported, attempt by attempt, thinned to what a picture can show.

Layer: cli; pure. Bounded whatever a run has reported: in metrics, attempts and points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainrun_operator.cli.pages.curve import Curve, Point

MOST_METRICS = 12
"""Metrics that have a picture: those that were reported first."""
MOST_ATTEMPTS = 30
"""Attempts that have curves: the first ones; a run of more is told by its incidents."""
LONGEST_NAME = 80
"""Characters of a metric's name."""

_NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """All that there are."""

    by_metric: Mapping[str, Mapping[int, list[Point]]] = field(default_factory=dict)
    """Metric, attempt, points in the order in which they were reported."""
    left_out: tuple[str, ...] = ()
    """Metrics without a picture."""


def curves_of(records: Iterable[Mapping[str, Any]]) -> Curves:
    """From the records of a run's metrics, as `read_metrics` gives them."""
    found: dict[str, dict[int, Curve]] = {}
    left_out: dict[str, None] = {}
    attempts: set[int] = set()
    for record in records:
        attempt, step, metrics = record.get("attempt"), record.get("step"), record.get("metrics")
        if record.get("rank") != 0 or not isinstance(metrics, dict):
            continue
        if not isinstance(attempt, int) or not isinstance(step, int):
            continue
        if attempt not in attempts and len(attempts) >= MOST_ATTEMPTS:
            continue
        attempts.add(attempt)
        for name, told in metrics.items():
            value = _number(told)
            if value is None:
                continue
            if name not in found and len(found) >= MOST_METRICS:
                if len(left_out) < MOST_METRICS:
                    left_out[name[:LONGEST_NAME]] = None
                continue
            found.setdefault(name, {}).setdefault(attempt, Curve()).add(step, value)
    return Curves(
        by_metric={
            name: {attempt: curve.points for attempt, curve in by_attempt.items()}
            for name, by_attempt in found.items()
        },
        left_out=tuple(left_out),
    )


def _number(told: object) -> float | None:
    if isinstance(told, dict):
        return _NO_NUMBERS.get(str(told.get("float")))
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    try:
        return float(told)
    except OverflowError:
        return None
