"""What the page shows beside the story: curves, and last lines of attempts that failed.

Layer: cli. Read for the page alone, since both may take a while; bounded, and what cannot be read
is a remark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainrun.checkpoint import RankLog, RunStore, read_logs, read_metrics, stored_logs
from trainrun.errors import StoreError
from trainrun_operator.cli.explaining.curves import Curves, curves_of
from trainrun_operator.cli.explaining.life import Life
from trainrun_operator.cli.sources import Source
from trainrun_operator.cli.which_generation import UnknownGeneration, generation_of

MOST_PIECES = 600
"""Pieces of metrics that are read; a piece is half a minute."""
MOST_ATTEMPTS = 10
"""Failed attempts whose last lines are shown: the newest."""
MOST_WORKERS = 8
"""Workers of each, the one of the culprit among them."""
MOST_RANKS = 16
"""Processes of each attempt, the culprit first."""
MOST_LINES = 60
"""Lines of each process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """Of one run."""

    curves: Curves = field(default_factory=Curves)
    logs: Mapping[int, tuple[RankLog, ...]] = field(default_factory=dict)
    """By attempt, the culprit first."""
    remarks: tuple[str, ...] = ()


def extras_of(source: Source, life: Life, *, generation: int | None) -> Extras:
    """Read them."""
    try:
        run = generation_of(source, generation)
        return Extras(curves=curves_of(read_metrics(run, most=MOST_PIECES)), logs=_logs(run, life))
    except (StoreError, UnknownGeneration) as error:
        return Extras(remarks=(f"neither curves nor last lines can be read: {error}",))


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
