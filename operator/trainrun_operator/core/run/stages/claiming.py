"""Before all stages: a run is led by one installation of the operator, which its status names.

Layer: core. A run without a holder is claimed by the first status that is written for it; of two
such writes the API server takes one. A run of another installation is left alone, by whatever way
it came here. Who takes a run over knows none of its workers, nor do they know whom to call: the
gang is made anew, and nothing is counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.core.run import transitions
from trainrun_operator.core.run.installation import name_of
from trainrun_operator.core.run.plan import Plan

if TYPE_CHECKING:
    from trainrun_operator.core.run.view import View


def left_alone(view: View) -> Plan | None:
    """The plan for a run of another installation: nothing."""
    holder = view.status.holder
    if view.observation.installation.may_lead(holder):
        return None
    message = f"the operator in namespace {name_of(holder)} leads this run"
    return Plan(reason="LedElsewhere", message=message, status=view.status)


def taken_over(view: View) -> Plan | None:
    """The first plan for an unfinished run that was led by another holder."""
    holder = view.status.holder
    if holder in ("", view.observation.installation.holder) or view.status.finished:
        return None
    return transitions.take_over(view, name_of(holder))


def claimed(view: View, plan: Plan) -> Plan:
    """The plan, or the write that makes the run ours before anything is done about it."""
    holder = view.observation.installation.holder
    if plan.status.holder == holder:
        return plan
    status = replace(plan.status, holder=holder)
    return replace(plan, status=status, transition=True, actions=(), answers={})
