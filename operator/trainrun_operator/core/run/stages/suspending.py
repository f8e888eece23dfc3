"""Suspending a run: finish uploads, give the storage back, leave; and what is left of it then.

Layer: core. Part of the stage without a running attempt.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run import answers, transitions
from trainrun_operator.core.run.display import refreshed
from trainrun_operator.core.run.flush import (
    answers_still,
    flush_left,
    flush_until,
    still_flushing,
    to_flush,
)
from trainrun_operator.core.run.gang.roster import deletion
from trainrun_operator.core.run.incidents.attribution import sender_awaited
from trainrun_operator.core.run.plan import DeleteWorker, Plan
from trainrun_operator.core.run.stages.waiting import IDLE_CHECK, wait
from trainrun_operator.core.run.steps import flushable
from trainrun_operator.core.run.view import counted

if TYPE_CHECKING:
    from trainrun_operator.core.run.observation import WorkerFact
    from trainrun_operator.core.run.view import View

LEAVE_GRACE = timedelta(seconds=60)
"""Workers of a suspended or finished run that have not left by then are deleted."""


def suspend(view: View) -> Plan:
    """spec.suspend: finish uploads, give the storage back, leave."""
    if not view.status.is_true("Suspended"):
        if still := busy(view):
            who = counted(len(still), "worker")
            message = f"waiting for {who} to stop and to finish their uploads"
            return wait(view, "Suspending", message, actions=())
        if (step := _to_commit(view)) is not None:
            message = f"every worker has brought step {step}; waiting for its commit"
            return wait(view, "Suspending", message, actions=())
        if sender_awaited(view, view.status.incident):
            message = "waiting for the end of a worker that got SIGTERM, which tells who sent it"
            return wait(view, "Suspending", message, actions=())
        return transitions.suspended(view)
    mark = view.status.condition("Suspended")
    assert mark is not None
    return Plan(
        reason="Suspended",
        message="the run is suspended",
        status=refreshed(view, view.status, phase="Suspended", reason="Suspended"),
        actions=left_overs(view, waited=view.observation.now - mark.last_transition_time),
        answers=answers.leaving(view, code=0, succeeded=False),
        requeue_after=IDLE_CHECK if view.workers else None,
    )


def busy(view: View) -> list[WorkerFact]:
    """Who still stops processes or uploads what it has, and is not hopeless."""
    if _waited_enough(view):
        return []
    flushing = {worker.name for worker in still_flushing(view)}
    return [w for w in view.workers if w.name in flushing or _stops(view, w)]


def _stops(view: View, worker: WorkerFact) -> bool:
    if worker.phase == "Pending" or not answers_still(view, worker):
        return False
    return worker.agent is None or worker.agent.phase != "Idle"


def _to_commit(view: View) -> int | None:
    """A step that every worker has, and that is about to be stored and committed.

    The next attempt would find it all the same once it is stored; but whoever suspends wants to see
    it saved.
    """
    ending, lead = view.status.ending, view.roster[0] if view.roster else None
    if ending is None or lead is None or _waited_enough(view) or not answers_still(view, lead):
        return None
    in_time = flush_left(view) > timedelta(0)
    brings = {
        slot
        for slot, worker in enumerate(view.roster)
        if in_time and worker is not None and answers_still(view, worker)
    }
    steps = flushable(view, frozenset(range(len(view.roster))) - brings)
    return max(set(steps) & set(to_flush(view)), default=None)


def _waited_enough(view: View) -> bool:
    until = flush_until(view)
    return until is None or view.observation.now - until > view.config.flush_timeout


def left_overs(view: View, *, waited: timedelta) -> tuple[DeleteWorker, ...]:
    """Ended workers, and those that do not leave although they were told to."""
    return tuple(
        action
        for w in view.workers
        if w.phase == "Ended" or w.agent is None or waited > LEAVE_GRACE or view.is_unreachable(w)
        for action in deletion(view, w, "the run is suspended")
    )
