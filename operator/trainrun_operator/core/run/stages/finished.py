"""The stage after the verdict: agents leave on order, logs are kept, ttlAfterFinished is obeyed.

Layer: core. Nothing takes a verdict back but the user (see `reopening`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run import answers
from trainrun_operator.core.run.display import refreshed
from trainrun_operator.core.run.gang.roster import deletion
from trainrun_operator.core.run.plan import Action, DeleteRun, Plan
from trainrun_operator.core.run.stages.reopening import reopened
from trainrun_operator.core.run.stages.suspending import LEAVE_GRACE

if TYPE_CHECKING:
    from trainrun_operator.api.run.status import PhaseName
    from trainrun_operator.core.run.view import View


def decide(view: View) -> Plan:
    """The plan for a run that has its verdict."""
    if (again := reopened(view)) is not None:
        return again
    status = view.status
    succeeded = status.is_true("Complete")
    phase: PhaseName = "Succeeded" if succeeded else "Failed"
    mark = status.condition("Complete" if succeeded else "Failed")
    assert mark is not None, "a finished status has one of the two"
    return Plan(
        reason=mark.reason,
        message=mark.message,
        status=refreshed(view, status, phase=phase, reason=mark.reason),
        actions=_clean_up(view),
        answers=answers.leaving(view, code=_exit_code(view), succeeded=succeeded),
        requeue_after=_next_look(view),
    )


def _exit_code(view: View) -> int:
    """0, or the culprit's exit code, so that the last pods show it."""
    if view.status.is_true("Complete"):
        return 0
    last = view.status.incidents[-1] if view.status.incidents else None
    return last.exit_code if last is not None and last.exit_code else 1


def _since_end(view: View) -> timedelta:
    end = view.status.completion_time
    return view.observation.now - end if end is not None else timedelta(0)


def _clean_up(view: View) -> tuple[Action, ...]:
    ttl = view.config.ttl_after_finished
    overdue = _since_end(view) > LEAVE_GRACE
    # Not before the agents have written what belongs to the end: `finished.json`, their uploads.
    left = overdue or all(w.phase == "Ended" for w in view.workers)
    if ttl is not None and _since_end(view) > ttl and left:
        return (DeleteRun(),)
    return tuple(
        action
        for w in view.workers
        if w.is_in_the_way and (overdue or view.is_unreachable(w))
        for action in deletion(view, w, "the run has ended")
    )


def _next_look(view: View) -> timedelta | None:
    waits = []
    if any(w.is_in_the_way for w in view.workers):
        waits.append(timedelta(seconds=5))
    if view.config.ttl_after_finished is not None:
        left = view.config.ttl_after_finished - _since_end(view)
        waits.append(max(left, timedelta(0)) + timedelta(seconds=1))
    return min(waits, default=None)
