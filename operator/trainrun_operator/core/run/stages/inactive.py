"""A run that is suspended or has its verdict: its agents leave, and an edit may continue it.

Layer: core. Suspending: finish uploads, release the storage, leave. After the verdict logs are kept
and ttlAfterFinished applies. Only the user takes back a verdict: a failed run continues when the
user raises the field that has ended it, gives the cause its own budget, or has repaired the way to
the storage. Invariants: only an edit later than the verdict does it, by the generation of the spec;
budgets and history are kept; a run that has succeeded, or failed for another reason, stays as it
is. It is one guarded write: of two operators one succeeds, and an edit that arrives with the
verdict makes that write conflict.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from trainrun_operator.api.resources import RESTART
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import Condition, PhaseName, TrainRunStatus
from trainrun_operator.api.run.status_parts import BudgetName, Ending
from trainrun_operator.core.run import answers, transitions
from trainrun_operator.core.run.boundary import Action, DeleteRun, DeleteWorker, Plan, WorkerFact
from trainrun_operator.core.run.causes import BUDGETS
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.display import condition, not_asked, refreshed, with_marks
from trainrun_operator.core.run.drain import (
    answers_still,
    flush_left,
    flush_until,
    gone_slots,
    still_flushing,
    to_flush,
)
from trainrun_operator.core.run.gang.roster import deletions
from trainrun_operator.core.run.incidents import ledger
from trainrun_operator.core.run.stages.waiting import IDLE_CHECK, wait, wait_for_sender
from trainrun_operator.core.run.steps import flushable
from trainrun_operator.core.run.storage import OUTSIDE
from trainrun_operator.core.run.view import View, counted

LEAVE_GRACE = timedelta(seconds=60)
"""After this time, workers of a suspended or finished run that have not left are deleted."""


def suspend(view: View) -> Plan:
    """spec.suspend: finish uploads, release the storage, leave."""
    if still := busy(view):
        who = counted(len(still), "worker")
        message = f"waiting for {who} to stop and to finish their uploads"
        return wait(view, "Suspending", message, actions=())
    if (step := _to_commit(view)) is not None:
        message = f"every worker has staged step {step}; waiting for its commit"
        return wait(view, "Suspending", message, actions=())
    return wait_for_sender(view, "Suspending") or transitions.suspended(view)


def suspended(view: View, since: datetime) -> Plan:
    """The plan for a run that is suspended."""
    return Plan(
        reason="Suspended",
        message="the run is suspended",
        status=refreshed(view, view.status, phase="Suspended", reason="Suspended"),
        actions=left_overs(view, waited=view.observation.now - since),
        answers=answers.leaving(view, code=0, succeeded=False),
        requeue_after=IDLE_CHECK if view.workers else None,
    )


def busy(view: View) -> list[WorkerFact]:
    """Workers that still stop processes or upload, and can still succeed."""
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

    Once stored, the next attempt would find it anyway; but a user who suspends wants to see it
    saved.
    """
    ending, lead = view.status.ending, view.roster[0] if view.roster else None
    if ending is None or lead is None or _waited_enough(view) or not answers_still(view, lead):
        return None
    in_time = flush_left(view) > timedelta(0)
    gone = gone_slots(view) if in_time else frozenset(range(len(view.roster)))
    steps = flushable(view, gone)
    return max(set(steps) & set(to_flush(view)), default=None)


def _waited_enough(view: View) -> bool:
    until = flush_until(view)
    return until is None or view.observation.now - until > view.config.flush_timeout


def left_overs(view: View, *, waited: timedelta) -> tuple[DeleteWorker, ...]:
    """Delete ended workers, and those that do not leave although they were ordered to."""
    left = (
        w
        for w in view.workers
        if w.phase == "Ended" or w.agent is None or waited > LEAVE_GRACE or view.is_unreachable(w)
    )
    return deletions(view, left, "the run is suspended")


def finished(view: View, verdict: Condition) -> Plan:
    """The plan for a run that has its verdict."""
    if (again := reopened(view)) is not None:
        return again
    succeeded = verdict.type == "Complete"
    phase: PhaseName = "Succeeded" if succeeded else "Failed"
    return Plan(
        reason=verdict.reason,
        message=verdict.message,
        status=refreshed(view, view.status, phase=phase, reason=verdict.reason),
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
    # Not before the agents have written `finished.json` and finished their uploads.
    left = overdue or all(w.phase == "Ended" for w in view.workers)
    if ttl is not None and _since_end(view) > ttl and left:
        return (DeleteRun(),)
    there = (w for w in view.workers if w.is_in_the_way and (overdue or view.is_unreachable(w)))
    return deletions(view, there, "the run has ended")


def _next_look(view: View) -> timedelta | None:
    waits = []
    if any(w.is_in_the_way for w in view.workers):
        waits.append(timedelta(seconds=5))
    if view.config.ttl_after_finished is not None:
        left = view.config.ttl_after_finished - _since_end(view)
        waits.append(max(left, timedelta(0)) + timedelta(seconds=1))
    return min(waits, default=None)


NO_PROGRESS, DEADLINE = "NoProgress", "DeadlineExceeded"


def reopened(view: View) -> Plan | None:
    """The write that continues a failed run; None: the run stays failed."""
    generation = view.observation.generation
    why = raised(view.status, view.config, generation=generation)
    if not why:
        return None
    message = f"{why}: the run continues and keeps what it has used of its budgets"
    attempted = view.status.attempt > 0
    plan = transitions.transition(
        view, "Reopened", message, phase="Restarting" if attempted else "Pending"
    )
    marks = (condition(view, "Failed", "False", "Reopened", message), *not_asked(view))
    status, now = plan.status, view.observation.now
    ended, begun = status.completion_time or now, status.start_time or now
    ending = Ending(attempt=status.attempt, kind="Reopened", time=now) if attempted else None
    status = replace(
        status,
        ending=ending,
        placement=None,
        store_wait=None,
        restart=view.config.restart or status.restart,
        completion_time=None,
        start_time=begun + (now - ended),  # without the time for which it was failed
        # Earlier workers have the order to leave: none of them is reused.
        resumptions=status.resumptions + 1,
    )
    return replace(plan, status=with_marks(status, *marks))


def raised(status: TrainRunStatus, config: RunConfig, *, generation: int) -> str:
    """The change since the verdict that continues the run; "": there is none.

    `generation`: of the spec that `config` was made from.
    """
    failed = status.condition("Failed")
    if failed is None or failed.status != "True":
        return ""
    if failed.reason in OUTSIDE and config.restart not in ("", status.restart):
        return f"the annotation {RESTART} has a new value"
    if generation <= failed.observed_generation:
        return ""
    if failed.reason in OUTSIDE:
        known = status.store_wait
        edited = known is not None and known.spec != config.reaches
        return "spec.storage or spec.workers.template has changed" if edited else ""
    field = _admitting(status, config, failed.reason)
    return f"spec.{field} now allows it" if field else ""


def _admitting(status: TrainRunStatus, config: RunConfig, reason: str) -> str:
    """The field that ended the run for this reason, if its new value allows the run; else ""."""
    if reason == DEADLINE:
        return "activeDeadline" if _is_in_time(status, config) else ""
    if reason == NO_PROGRESS:
        return ledger.NO_PROGRESS_LIMIT if ledger.admits_more(status, config) else ""
    for name, budget in BUDGETS.items():
        if reason == ledger.exceeded(budget):
            admitting = name if ledger.admits(status, name, config) else _given(status, config)
            return f"failurePolicy.{BUDGETS[admitting].field}" if admitting is not None else ""
    return ""


def _given(status: TrainRunStatus, config: RunConfig) -> BudgetName | None:
    """The other budget that the last incident now has, if it has room there; else None."""
    last = status.incidents[-1]
    name = ledger.charged(status, last, config).budget
    if name in ("none", last.budget):
        return None
    return name if ledger.has_room(status, name, config, at=last.time) else None


def _is_in_time(status: TrainRunStatus, config: RunConfig) -> bool:
    limit, begun, ended = config.active_deadline, status.start_time, status.completion_time
    return limit is None or begun is None or ended is None or ended - begun <= limit
