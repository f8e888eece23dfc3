"""Pictures of the metrics that rank 0 reported, from the records in a run's storage.

Layer: cli; pure. Their size is bounded, whatever a run has reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainrun.contract.metrics import decode
from trainrun_operator.cli.report.drawing import Downsampled
from trainrun_operator.cli.report.model import Block, Curves, Point, TextLine

MOST_METRICS = 12
"""Metrics that are drawn: those that were reported first."""
MOST_CURVES = 30
"""Attempts that have curves: the first ones; the incidents describe a run of more."""


@dataclass(slots=True)
class MetricCurves:
    """The curves of one run so far, by metric and attempt."""

    _found: dict[str, dict[int, Downsampled]] = field(default_factory=dict)
    _left_out: dict[str, None] = field(default_factory=dict)
    _attempts: list[int] = field(default_factory=list)

    def add(self, records: Iterable[Mapping[str, object]]) -> None:
        """Add records of `read_metrics`, in order."""
        for attempt, step, name, value in reported_numbers(records):
            if attempt not in self._attempts:
                if len(self._attempts) >= MOST_CURVES:
                    continue
                self._attempts.append(attempt)
            if name in self._found or len(self._found) < MOST_METRICS:
                curves = self._found.setdefault(name, {})
                curves.setdefault(self._attempts.index(attempt), Downsampled()).add(step, value)
            elif len(self._left_out) < MOST_METRICS:
                self._left_out[name] = None

    def blocks(self, newer: Iterable[Mapping[str, object]] = ()) -> tuple[Block, ...]:
        """The pictures, and the names of metrics without one; empty if there are no numbers.
        `newer`: records that the storage does not have yet, drawn as far as they go on."""
        attempts, pictures = self._drawn(newer)
        if not pictures:
            return ()
        names = tuple(f"attempt {attempt}" for attempt in attempts)
        left_out = self._left_out
        more = (TextLine(f"Not drawn: {', '.join(left_out)}."),) if left_out else ()
        return (Curves(names=names, pictures=pictures), *more)

    def joined(self, newer: Iterable[Mapping[str, object]] = ()) -> dict[str, list[Point]]:
        """One curve for each metric: each attempt takes over at its first step."""
        _, pictures = self._drawn(newer)
        curves = dict[str, list[Point]]()
        for name, picture in pictures.items():
            whole = curves.setdefault(name, [])
            for _, points in sorted(picture.items()):
                first = points[0][0] if points else 0
                whole[:] = [*(point for point in whole if point[0] < first), *points]
        return curves

    def _drawn(
        self, newer: Iterable[Mapping[str, object]]
    ) -> tuple[list[int], dict[str, dict[int, list[Point]]]]:
        """The attempts, and the points of each metric by the position of the attempt."""
        # Another thread may add meanwhile: copy first, and the attempts last.
        pictures = {
            name: {at: curve.points for at, curve in [*curves.items()]}
            for name, curves in [*self._found.items()]
        }
        attempts = [*self._attempts]
        for attempt, step, name, value in reported_numbers(newer):
            if attempt not in attempts and len(attempts) < MOST_CURVES:
                attempts.append(attempt)
            if attempt in attempts and (name in pictures or len(pictures) < MOST_METRICS):
                points = pictures.setdefault(name, {}).setdefault(attempts.index(attempt), [])
                if not points or step > points[-1][0]:
                    points.append((step, value))
        return attempts, pictures


def reported_numbers(
    records: Iterable[Mapping[str, object]],
) -> Iterator[tuple[int, int, str, float]]:
    """(attempt, step, metric, value) of rank 0."""
    for record in records:
        attempt, step, metrics = record.get("attempt"), record.get("step"), record.get("metrics")
        if record.get("rank") != 0 or not isinstance(metrics, dict):
            continue
        if not isinstance(attempt, int) or not isinstance(step, int):
            continue
        for name, value in decode(metrics).items():
            if not isinstance(value, bool | str):
                yield attempt, step, name, float(value)
