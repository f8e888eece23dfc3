"""A run that has failed goes on when its user raises the field that has ended it, gives what has
ended it a budget of its own, or has repaired the way to its storage.

Layer: core. Part of the stage after the verdict. Invariants: only an edit later than the verdict
does it, by the generation of the spec; budgets and history are kept; a run that has succeeded, or
has failed for something else, stays as it is. All of it is one guarded write: of two operators one
does it, and an edit that comes with the verdict makes that write conflict.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.api.run.incident import Ending
from trainrun_operator.api.run.resource import RESTART
from trainrun_operator.core.run import transitions
from trainrun_operator.core.run.causes import BUDGETS
from trainrun_operator.core.run.display import condition, not_asked
from trainrun_operator.core.run.incidents import ledger, standstill
from trainrun_operator.core.run.store_wait import OUTSIDE

if TYPE_CHECKING:
    from trainrun_operator.api.run.incident import BudgetName
    from trainrun_operator.api.run.status import TrainRunStatus
    from trainrun_operator.core.run.config import RunConfig
    from trainrun_operator.core.run.plan import Plan
    from trainrun_operator.core.run.view import View

NO_PROGRESS, DEADLINE = "NoProgress", "DeadlineExceeded"


def reopened(view: View) -> Plan | None:
    """The write with which a failed run goes on; None where it does not."""
    generation = view.observation.generation
    why = raised(view.status, view.config, generation=generation)
    if not why:
        return None
    message = f"{why}: the run goes on, with what it has used of its budgets"
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
        start_time=begun + (now - ended),  # the time in which it stood failed is not the run's
        # Workers of before were told to leave: none of them is counted on.
        resumptions=status.resumptions + 1,
    )
    return replace(plan, status=transitions.with_marks(status, *marks))


def raised(status: TrainRunStatus, config: RunConfig, *, generation: int) -> str:
    """What its user has changed since, so that the run goes on; "": nothing of that kind.

    `generation` of the spec that `config` was made from.
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
    return f"spec.{field} admits it now" if field else ""


def _admitting(status: TrainRunStatus, config: RunConfig, reason: str) -> str:
    """The field that has ended the run for this reason, where it admits now that it goes on."""
    if reason == DEADLINE:
        return "activeDeadline" if _is_in_time(status, config) else ""
    if reason == NO_PROGRESS:
        return standstill.FIELD if standstill.admits(status, config) else ""
    for name, budget in BUDGETS.items():
        if reason == ledger.exceeded(budget):
            admitting = name if ledger.admits(status, name, config) else _given(status, config)
            return f"failurePolicy.{BUDGETS[admitting].field}" if admitting is not None else ""
    return ""


def _given(status: TrainRunStatus, config: RunConfig) -> BudgetName | None:
    """The budget of its own that the last incident has been given since, where that admits it."""
    last = status.incidents[-1]
    name = ledger.charged(status, last, config).budget
    if name in ("none", last.budget):
        return None
    return name if ledger.has_room(status, name, config, at=last.time) else None


def _is_in_time(status: TrainRunStatus, config: RunConfig) -> bool:
    limit, begun, ended = config.active_deadline, status.start_time, status.completion_time
    return limit is None or begun is None or ended is None or ended - begun <= limit
