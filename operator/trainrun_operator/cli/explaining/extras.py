"""What the page shows beside the story: curves, and last lines of attempts that failed.

Layer: cli. Read for the page alone, since both may take a while; bounded whatever a run has
reported, and what cannot be read is a remark.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trainrun.checkpoint.logs import RankLog, read_logs, stored_logs
from trainrun.checkpoint.metrics_log import read_metrics
from trainrun.checkpoint.run_store import RunStore
from trainrun.errors import StoreError
from trainrun_operator.cli.explaining.life import Life
from trainrun_operator.cli.report.drawing import Thinned
from trainrun_operator.cli.report.model import Block, Curves, TextLine
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.which_generation import UnknownGeneration, generation_of

MOST_PIECES = 600
"""Pieces of metrics that are read; a piece is half a minute."""
MOST_METRICS = 12
"""Metrics that have a picture: those that were reported first."""
MOST_CURVES = 30
"""Attempts that have curves: the first ones; a run of more is told by its incidents."""
MOST_ATTEMPTS = 10
"""Failed attempts whose last lines are shown: the newest."""
MOST_WORKERS = 8
"""Workers of each, the one of the culprit among them."""
MOST_RANKS = 16
"""Processes of each attempt, the culprit first."""

_NO_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Of one run."""

    curves: tuple[Block, ...] = ()
    """What rank 0 has reported."""
    logs: Mapping[int, tuple[RankLog, ...]] = field(default_factory=dict)
    """By attempt, the culprit first."""
    remarks: tuple[str, ...] = ()


def extras_of(source: Source, life: Life, *, generation: int | None) -> Extras:
    """Read them."""
    try:
        run = generation_of(source, generation)
        told = read_metrics(run, most=MOST_PIECES)
        return Extras(curves=curves_of(told), logs=_logs(run, life))
    except (StoreError, UnknownGeneration) as error:
        return Extras(remarks=(f"neither curves nor last lines can be read: {error}",))


def curves_of(records: Iterable[Mapping[str, object]]) -> tuple[Block, ...]:
    """From the records of a run's metrics, as `read_metrics` gives them: pictures of the metrics,
    and the names of those that have none; nothing where there are no numbers."""
    found: dict[str, dict[int, Thinned]] = {}
    left_out: dict[str, None] = {}
    attempts: list[int] = []
    for attempt, step, name, value in _numbers(records):
        if attempt not in attempts:
            if len(attempts) >= MOST_CURVES:
                continue
            attempts.append(attempt)
        if name in found or len(found) < MOST_METRICS:
            curves = found.setdefault(name, {})
            curves.setdefault(attempts.index(attempt), Thinned()).add(step, value)
        elif len(left_out) < MOST_METRICS:
            left_out[name] = None
    if not found:
        return ()
    pictures = {
        name: {at: curve.points for at, curve in curves.items()} for name, curves in found.items()
    }
    names = tuple(f"attempt {attempt}" for attempt in attempts)
    more = (TextLine(f"Without a picture: {', '.join(left_out)}."),) if left_out else ()
    return (Curves(names=names, pictures=pictures), *more)


def _numbers(records: Iterable[Mapping[str, object]]) -> Iterator[tuple[int, int, str, float]]:
    """Attempt, step, metric, value, of rank 0."""
    for record in records:
        attempt, step, metrics = record.get("attempt"), record.get("step"), record.get("metrics")
        if record.get("rank") != 0 or not isinstance(metrics, dict):
            continue
        if not isinstance(attempt, int) or not isinstance(step, int):
            continue
        for name, told in metrics.items():
            value = _number(told)
            if value is not None:
                yield attempt, step, name, value


def _number(told: object) -> float | None:
    if isinstance(told, dict):
        return _NO_NUMBERS.get(str(told.get("float")))
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    try:
        return float(told)
    except OverflowError:
        return None


def _logs(run: RunStore, life: Life) -> dict[int, tuple[RankLog, ...]]:
    failed = {c.attempt: c.incident.get("rank") for c in life.incidents if c.workers}
    slots: dict[int, list[int]] = defaultdict(list)
    for attempt, slot in stored_logs(run):
        if attempt in failed:
            slots[attempt].append(slot)
    return {
        attempt: _of(run, attempt, slots[attempt], failed[attempt])
        for attempt in sorted(slots)[-MOST_ATTEMPTS:]
    }


def _of(run: RunStore, attempt: int, slots: list[int], culprit: object) -> tuple[RankLog, ...]:
    first = next(iter(read_logs(run, [(attempt, slots[0])])), None)
    each = max(len(first.ranks), 1) if first is not None else 1
    guilty = culprit // each if isinstance(culprit, int) else None
    chosen = sorted(slots, key=lambda slot: (slot != guilty, slot))[:MOST_WORKERS]
    logs = read_logs(run, [(attempt, slot) for slot in chosen])
    ranks = [rank for log in logs if log is not None for rank in log.ranks]
    ranks.sort(key=lambda rank: (rank.rank != culprit, rank.rank))
    return tuple(ranks[:MOST_RANKS])
