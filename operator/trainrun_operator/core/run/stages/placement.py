"""Why the gang is incomplete, and when a partly placed gang gives its pods back.

Layer: core. The condition WorkersReady reports the worst problem, in words that the user can act
on, and how many workers have it; problems that pass within seconds are not reported. Two gangs must
not starve each other: the pause grows with every try and differs between runs, so that one of two
finds the room free. Part of the stage without a running attempt, so a running attempt is never
touched. Never counted.
"""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import get_args

from trainrun_operator.core.run import transitions
from trainrun_operator.core.run.boundary import (
    Pending,
    PendingKind,
    Plan,
    Refused,
    RefusedReason,
    WorkerFact,
)
from trainrun_operator.core.run.display import condition, not_asked
from trainrun_operator.core.run.gang.roster import COUNTED, deletions
from trainrun_operator.core.run.stages.inactive import busy
from trainrun_operator.core.run.stages.waiting import wait
from trainrun_operator.core.run.view import View, counted

PATIENCE = timedelta(seconds=10)
"""Younger problems are not reported."""


ENDED_PODS = (
    "; ended pods count, too: those of this run are deleted, the oldest first; delete finished "
    "runs, or set their spec.ttlAfterFinished"
)
"""Added to the message about a quota on count/pods."""


PLACED = "Starting"
"""The kind that is not a problem."""


def missing(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[str, str] | None:
    """Reason and message of the worst problem of missing workers; None: they only need time."""
    refusals = _refusals(view, chosen)
    for reason in get_args(RefusedReason):
        found = [r for r in refusals if r.reason == reason]
        if found:
            who = f"{len(found)} of {counted(view.config.replicas, 'worker')} cannot be created"
            remedy = ENDED_PODS if COUNTED in found[0].message else ""
            return reason, f"{who}: {found[0].message}{remedy}"
    return _pending(view, chosen)


def _refusals(view: View, chosen: tuple[WorkerFact | None, ...]) -> list[Refused]:
    """Refused creations for slots that still lack a worker."""
    return [
        refused
        for refused in sorted(view.observation.refused, key=lambda r: (r.slot, r.name))
        if refused.slot < len(chosen)
        and chosen[refused.slot] is None
        and (refused.since > PATIENCE or refused.reason == "Invalid")
    ]


def _pending(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[str, str] | None:
    pending = [
        (worker, worker.pending)
        for worker in chosen
        if worker is not None and worker.phase == "Pending" and worker.pending is not None
    ]
    for kind in get_args(PendingKind):
        found = [pair for pair in pending if pair[1].kind == kind and _lasts(pair[1])]
        if found:
            worker, why = found[0]
            verb = "being started" if kind == PLACED else "waiting"
            who = f"{len(found)} of {counted(view.config.replicas, 'worker')} {verb}"
            return kind, f"{who}: {worker.name}: {why.message}"
    return None


def _lasts(pending: Pending) -> bool:
    return pending.kind == PLACED or pending.since > PATIENCE


FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=30), timedelta(minutes=10)
"""How long a gang waits after it gave its pods back: from the first of these (placementTimeout, if
that is shorter) up to twice as long, doubled each time, up to the second."""


def decide(view: View, chosen: tuple[WorkerFact | None, ...]) -> Plan | None:
    """Give the pods back if only a part has found room, and then stay away; None: neither."""
    held = view.status.placement
    left = held.not_before - view.observation.now if held is not None else timedelta(0)
    # A longer time was written by a leader whose clock was ahead of ours.
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
    """The pause before this try: a function of run and try, so all operators decide the same."""
    plain = min(FIRST_PAUSE, view.config.placement_timeout) * (1 << min(tries - 1, 16))
    spread = zlib.crc32(f"{view.config.uid}/placement/{tries}".encode()) / 0xFFFFFFFF
    return min(plain, LONGEST_PAUSE) * (1 + spread)


def _stay_away(view: View, left: timedelta) -> Plan:
    status = view.status.condition("WorkersReady")
    message = status.message if status is not None else "there was no room for the whole gang"
    kept = {w.name for w in busy(view)}
    there = (w for w in view.workers if w.is_in_the_way and w.name not in kept)
    actions = deletions(view, there, "there is no room for the whole gang")
    mark = condition(view, "WorkersReady", "False", "GangNotPlaced", message)
    marks = (mark, *not_asked(view))
    return wait(view, "GangNotPlaced", message, actions=actions, marks=marks, after=left)


def _without_room(view: View, chosen: tuple[WorkerFact | None, ...]) -> int:
    """How many workers lack room, once one of them has for too long; else 0."""
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
    """Messages about workers behind scheduling gates."""
    pending = (w.pending for w in chosen if w is not None)
    return [why.message for why in pending if why is not None and why.kind == "SchedulingGated"]


def _placed(chosen: tuple[WorkerFact | None, ...]) -> int:
    """How many workers hold room that other runs may need."""
    there = [w for w in chosen if w is not None and not _lacks_room(w)]
    return sum(worker.phase == "Running" or bool(worker.node) for worker in there)


def _lacks_room(worker: WorkerFact) -> bool:
    pending = worker.pending
    waits = pending is not None and pending.kind in ("Unschedulable", "SchedulingGated")
    return worker.phase == "Pending" and waits
