"""The status changes that open an incident and settle it, and what it cost.

Layer: core. Every write that ends the provisional state of an incident contains `settled`, so it is
counted once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainrun_operator.core import ledger
from trainrun_operator.core.attribution import refined
from trainrun_operator.core.causes import Cause
from trainrun_operator.core.view import View, max_step

if TYPE_CHECKING:
    from trainrun_operator.api.status import Incident, ResumePoint, StartRecord, TrainRunStatus


def made_progress(view: View) -> bool:
    """The attempt got beyond the step that it was handed, and beyond what the one before reached.

    A run that fails at the same step again and again makes no progress, however many steps it does.
    """
    record, reached = view.record, highest_step(view)
    if record is None or reached is None:
        return False
    begin = record.resume_point.step if record.resume_point else -1
    return reached > max(begin, _reached_before(view, record, begin))


def fruitless_after(view: View, incident: Incident) -> int:
    """Attempts in a row without a new step, the one that this incident ends included."""
    if made_progress(view):
        return 0
    return view.status.fruitless + (incident.cause != Cause.INTERRUPTED)


def _reached_before(view: View, record: StartRecord, begin: int) -> int:
    """The step at which the incident before this attempt happened, -1 where there was none."""
    last = view.status.incidents[-1] if view.status.incidents else None
    if last is None or last.attempt != record.attempt - 1 or last.lost_steps is None:
        return -1
    return max(begin, 0) + last.lost_steps


def highest_step(view: View) -> int | None:
    """The highest step that anybody reported in the newest attempt, those who are gone included."""
    seen = [max_step(agent) for agent in view.agents]
    shown, record = view.status.progress, view.record
    if shown.time is not None and record is not None and shown.time > record.time:
        seen.append(shown.step)
    return max((step for step in seen if step is not None), default=None)


def opened(
    view: View, incident: Incident, status: TrainRunStatus, fruitless: int
) -> dict[str, Any]:
    """The new open incident, and the budgets of `status` that show it, as changes of the status."""
    after = status.model_copy(update={"fruitless": fruitless})
    charged = ledger.charged(after, incident, view.config)
    failures = ledger.tally(status.failures, view.config, pending=charged)
    return {"incident": charged, "failures": failures}


def settled(view: View) -> dict[str, Any]:
    """The open incident charged to its budget, as changes of the status.

    Every write that ends the provisional state of an incident contains it, so it is counted once.
    """
    if view.status.incident is None:
        return {"incident": None}
    incident = refined(view, view.status.incident)
    failures, incidents = ledger.settle(view.status, incident, view.config)
    return {"failures": failures, "incidents": incidents, "incident": None}


def measured(view: View, point: ResumePoint | None) -> dict[str, Any]:
    """What the settled incident cost, now that the attempt after it starts from `point`."""
    if view.status.incident is None:
        return {}
    changes = settled(view)
    last: Incident = changes["incidents"][-1]
    reached = highest_step(view)
    begin = point.step if point is not None else -1
    priced = last.model_copy(
        update={
            "resumed_from": point,
            "lost_steps": max(reached - max(begin, 0), 0) if reached is not None else None,
            "restart_seconds": round((view.observation.now - last.time).total_seconds(), 3),
        }
    )
    return {"incidents": (*changes["incidents"][:-1], priced)}
