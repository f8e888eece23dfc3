"""Two gangs must not starve each other: one that is half placed gives its pods back in the end.

Layer: core. Part of the stage without a running attempt, so an attempt that runs is never touched.
Never counted. How long it stays away grows with every try, and differs from run to run, so that one
of two gangs finds the room free.
"""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run import transitions
from trainrun_operator.core.run.display import condition, not_asked
from trainrun_operator.core.run.gang.roster import deletion
from trainrun_operator.core.run.stages.suspending import busy
from trainrun_operator.core.run.stages.waiting import wait
from trainrun_operator.core.run.view import counted

if TYPE_CHECKING:
    from trainrun_operator.core.run.observation import WorkerFact
    from trainrun_operator.core.run.plan import Plan
    from trainrun_operator.core.run.view import View

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=30), timedelta(minutes=10)
"""How long a gang that gave its pods back stays away: from the first of these (placementTimeout, if
that is shorter) up to twice as long, and twice as long each time, until the second."""


def decide(view: View, chosen: tuple[WorkerFact | None, ...]) -> Plan | None:
    """Stay away while the pods are given back; give them back when only a part has found room."""
    held = view.status.placement
    left = held.not_before - view.observation.now if held is not None else timedelta(0)
    # A longer one was written by a clock that was ahead of ours.
    if timedelta(0) < left <= 2 * LONGEST_PAUSE:
        return _stay_away(view, left)
    without, placed = _without_room(view, chosen), _placed(chosen)
    if not without or not placed:
        return None
    tries = held.tries + 1 if held is not None else 1
    until = view.observation.now + pause(view, tries)
    gated = _gated(chosen)
    lack = (
        f"{len(gated)} behind a scheduling gate after" if gated else f"no room for {without} within"
    )
    message = (
        f"{placed} of {counted(view.config.replicas, 'worker')} placed, and {lack} "
        f"health.placementTimeout ({view.config.placement_timeout.total_seconds():.0f} s): all "
        f"pods are given back, to be created again at {until:%H:%M:%S} UTC"
    )
    message = "; ".join((message, *gated[:1]))
    return transitions.give_back(view, tries=tries, until=until, message=message)


def pause(view: View, tries: int) -> timedelta:
    """A function of run and try, so that every operator decides the same."""
    plain = min(FIRST_PAUSE, view.config.placement_timeout) * (1 << min(tries - 1, 16))
    spread = zlib.crc32(f"{view.config.uid}/placement/{tries}".encode()) / 0xFFFFFFFF
    return min(plain, LONGEST_PAUSE) * (1 + spread)


def _stay_away(view: View, left: timedelta) -> Plan:
    status = view.status.condition("WorkersReady")
    message = status.message if status is not None else "there was no room for the whole gang"
    kept = {w.name for w in busy(view)}
    actions = tuple(
        action
        for w in view.workers
        if w.is_in_the_way and w.name not in kept
        for action in deletion(view, w, "there is no room for the whole gang")
    )
    mark = condition(view, "WorkersReady", "False", "GangNotPlaced", message)
    marks = (mark, *not_asked(view))
    return wait(view, "GangNotPlaced", message, actions=actions, marks=marks, after=left)


def _without_room(view: View, chosen: tuple[WorkerFact | None, ...]) -> int:
    """Workers that lack room, once one of them has lacked it for too long."""
    unplaced = [
        w.pending.since
        for w in chosen
        if w is not None and w.pending is not None and _lacks_room(w)
    ]
    unplaced += [
        refused.since
        for refused in view.observation.refused
        if refused.reason == "QuotaExceeded"
        and refused.slot < len(chosen)
        and chosen[refused.slot] is None
    ]
    late = any(since > view.config.placement_timeout for since in unplaced)
    return len(unplaced) if late else 0


def _gated(chosen: tuple[WorkerFact | None, ...]) -> list[str]:
    """What holds back those that nobody looks for room for yet."""
    pending = (w.pending for w in chosen if w is not None)
    return [it.message for it in pending if it is not None and it.kind == "SchedulingGated"]


def _placed(chosen: tuple[WorkerFact | None, ...]) -> int:
    """Workers that hold room which others may need."""
    there = [w for w in chosen if w is not None and not _lacks_room(w)]
    return sum(worker.phase == "Running" or bool(worker.node) for worker in there)


def _lacks_room(worker: WorkerFact) -> bool:
    pending = worker.pending
    waits = pending is not None and pending.kind in ("Unschedulable", "SchedulingGated")
    return worker.phase == "Pending" and waits
