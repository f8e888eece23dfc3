"""Goodput: what the time of a run went into, from what its chapters tell.

Layer: core; pure arithmetic. The seconds of a chapter are divided among buckets without a rest, so
the buckets of a run sum to its time. A step counts as useful once, and only if what it did
survived: the steps beyond the checkpoint that the next attempt resumed from are rework.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, get_args

from trainrun_operator.api.run.story import Bucket
from trainrun_operator.core.run.causes import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from trainrun_operator.api.run.story import Chapter

BUCKETS: tuple[Bucket, ...] = get_args(Bucket)
"""In the order in which they are shown."""

WAITS: Mapping[str, Bucket] = {
    "Unschedulable": "queue",
    "SchedulingGated": "queue",
    "QuotaExceeded": "queue",
    "Forbidden": "queue",
    "NameTaken": "queue",
    "Invalid": "queue",
    "InvalidTemplate": "queue",
    "GangNotPlaced": "queue",
    "ImagePull": "image",
    "ConfigError": "image",
    "BackingOff": "backoff",
    "Resolving": "load",
    "StorageUnavailable": "load",
    "StorageMisconfigured": "load",
    "StorageInUse": "load",
    "NoGoodCheckpoint": "load",
    "CheckpointSuspect": "load",
    "Ending": "drain",
    "Stopping": "drain",
    "Flushing": "drain",
    "Suspending": "drain",
    "Attributing": "drain",
}
"""The bucket of what is waited for between two attempts; anything else is `start`."""

ROUNDING = 0.01
"""Seconds."""

NORMAL_STEPS = 2
"""So many steps of usual length after the last one are no hang."""


def divided(chapter: Chapter, until: datetime) -> dict[str, float]:
    """The seconds from the beginning of a chapter, by bucket; never less than none.

    The clocks of two leaders differ: moments that are out of order are taken for the same, and
    parts that are more than the whole are made smaller alike.
    """
    found: dict[str, float] = defaultdict(float)
    if chapter.workers:
        _attempt(chapter, max(min(chapter.ended or until, until), chapter.begun), found)
    for reason, waited in waits(chapter, until).items():
        found[WAITS.get(reason, "start")] += waited
    parts: dict[str, float] = {}
    for name in BUCKETS:
        if (part := round(found[name], 3)) > 0:
            parts[name] = part
    whole, known = max(_seconds(until - chapter.begun), 0.0), sum(parts.values())
    if known > whole + ROUNDING:
        parts = {name: part * whole / known for name, part in parts.items()}
    rest = round(whole - sum(parts.values()), 3)
    # What rounding leaves over is no time that nobody knows of.
    place = "unknown" if rest > ROUNDING else max(parts, key=lambda name: parts[name], default="")
    return total(parts, {place: rest})


def waits(chapter: Chapter, until: datetime) -> dict[str, float]:
    """The seconds that were waited while no attempt ran, by reason, the present one included."""
    if chapter.since is None:
        return dict(chapter.waits)
    now = chapter.waits.get(chapter.doing, 0.0) + _seconds(until - chapter.since)
    return {**chapter.waits, chapter.doing: now}


def total(parts: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """The sum of two divisions."""
    both = {name: round(parts.get(name, 0.0) + more.get(name, 0.0), 3) for name in BUCKETS}
    return {name: amount for name, amount in both.items() if amount}


def goodput(parts: Mapping[str, float]) -> float | None:
    """Useful time of all time; None where no time has passed."""
    whole = sum(parts.values())
    return parts.get("useful", 0.0) / whole if whole > 0 else None


def _attempt(chapter: Chapter, stop: datetime, found: dict[str, float]) -> None:
    """Divide the time in which an attempt ran, from its start record until it was given up."""
    spawned = max(min(chapter.spawned or chapter.begun, stop), chapter.begun)
    found["start"] += _seconds(spawned - chapter.begun)
    first = max(min(chapter.first_step or stop, stop), spawned)
    rest = _seconds(first - spawned)
    meeting = min(chapter.rendezvous_seconds, rest)
    loading = min(chapter.load_seconds, rest - meeting)
    found["rendezvous"] += meeting
    found["load"] += loading
    rest -= meeting + loading
    if chapter.first_step is None:
        # Who never reports may have trained all the time.
        found["first_step" if chapter.reports else "unknown"] += rest
        return
    found["first_step"] += rest
    _training(chapter, first, stop, found)


def _training(chapter: Chapter, first: datetime, stop: datetime, found: dict[str, float]) -> None:
    """Divide the time between the first step and the end of an attempt."""
    last = min(max(chapter.stepped or first, first), stop)
    trained, after = _seconds(last - first), _seconds(stop - last)
    stall = min(chapter.stall_seconds, trained)
    base = chapter.resumed_from.step if chapter.resumed_from is not None else 0
    done = max((chapter.reached or base) - base, 1)
    kept = done if chapter.ended is None else min(max((chapter.survived or 0) - base, 0), done)
    # The first step of an attempt is in `first_step`.
    steps, useful = done - 1, max(kept - 1, 0)
    work = trained - stall
    share = useful / steps if steps else float(kept > 0)
    found["checkpoint_stall"] += stall
    found["useful"] += work * share
    found["rework"] += work * (1.0 - share)
    found[_after_last_step(chapter, after, work / steps if steps else 0.0)] += after


def _after_last_step(chapter: Chapter, seconds: float, step: float) -> Bucket:
    """What the time was in which no step ended any more."""
    if chapter.ended is None:
        return "useful" if seconds <= NORMAL_STEPS * step else "unknown"
    cause = chapter.incident.get("cause")
    if chapter.end != "Incident" or cause in (Cause.PREEMPTED, Cause.TERMINATED):
        return "drain"
    if cause == Cause.INTERRUPTED:  # nobody led it, for a night perhaps: nothing hung
        return "unknown"
    return "rework" if seconds <= NORMAL_STEPS * step else "hang"


def _seconds(time: timedelta) -> float:
    return time.total_seconds()
