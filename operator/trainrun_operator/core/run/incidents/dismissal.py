"""Workers of an ended attempt that we delete: named in the status before anything happens to them.

Layer: core. A deletion looks like a preemption: SIGTERM, a notice, a worker that ends or is gone.
Since the status says whose doing it was, no operator takes it for a loss, one that has just taken
over included.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.core.run.plan import DeleteWorker

if TYPE_CHECKING:
    from trainrun_operator.core.run.plan import Plan
    from trainrun_operator.core.run.view import View


def named_first(view: View, plan: Plan) -> Plan:
    """The plan, or the write that must come before its deletions."""
    ending = view.status.ending
    if ending is None or view.status.incident is None:
        return plan
    deleted = {action.name for action in plan.actions if isinstance(action, DeleteWorker)}
    slots = [
        slot
        for slot, worker in enumerate(view.roster)
        if worker is not None and worker.name in deleted and not ending.has_dismissed(slot)
    ]
    if not slots:
        return plan
    named = replace(ending, dismissed=ending.dismissing(slots))
    status = replace(plan.status, ending=named)
    return replace(plan, status=status, transition=True, actions=(), answers={})
