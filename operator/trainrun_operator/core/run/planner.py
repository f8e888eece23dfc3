"""decide(): the one pure function that drives a run through its whole life.

Layer: core. It reads no clock, does no I/O and logs nothing; the same observation and configuration
give the same plan, whatever the order of the workers. The steps of a decision:

1. A run of another installation is left alone. A run that we take over is first marked as ours. The
   new installation does not know its workers, and they do not know its address: the gang is
   recreated, and nothing is counted.
2. The stage of the run's state makes the plan: `gathering`, `running` or `inactive`.
3. Workers of an ended attempt that the plan deletes are named in the status first. A deletion looks
   like a preemption: SIGTERM, a notice, a worker that ends or disappears. So no operator, even one
   that has just taken over, mistakes it for a loss.
4. The first status written for a run without a holder claims it; of two such writes the API server
   accepts one.
5. The status gets the conditions for tools that do not know TrainRuns (`health`) and is cut to its
   size limit; what is new in it becomes events, each sent once.
"""

from __future__ import annotations

from trainrun_operator.api.run.replacing import replace
from trainrun_operator.core.run import transitions
from trainrun_operator.core.run.boundary import DeleteWorker, Event, Observation, Plan, name_of
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.display import LASTING, news
from trainrun_operator.core.run.health import with_health
from trainrun_operator.core.run.run_state import (
    Finished,
    Gathering,
    New,
    Running,
    Suspended,
    state_of,
)
from trainrun_operator.core.run.stages import gathering, inactive, running
from trainrun_operator.core.run.status_size import fitted, with_history
from trainrun_operator.core.run.storage import with_recheck
from trainrun_operator.core.run.story import with_story
from trainrun_operator.core.run.view import View

ADVICE = "ImportsDominate"
"""Reason of the event that recommends a warm start."""


def decide(observation: Observation, config: RunConfig) -> Plan:
    """The plan for a run now."""
    view = View(observation=observation, config=config)
    if (elsewhere := left_alone(view)) is not None:
        return elsewhere
    plan = taken_over(view) or named_first(view, _staged(view))
    plan = claimed(view, plan)
    # Cut first: a warning that does not fit would be new in every pass.
    plan = _announced(view, replace(plan, status=fitted(with_health(view, plan.status))))
    return with_recheck(view, with_story(view, with_history(plan, observation.now)))


def _staged(view: View) -> Plan:
    """The plan of the stage; mypy checks that each state has one."""
    match state_of(view.status):
        case Finished(verdict):
            return inactive.finished(view, verdict)
        case Running(record):
            return running.decide(view, record)
        case New():
            return transitions.accept(view)
        case Gathering() | Suspended() as state:
            return gathering.decide(view, state)


def _announced(view: View, plan: Plan) -> Plan:
    """New warnings and advice become a status write, so that each makes one event."""
    new = news(view.status, plan.status)
    advice = plan.status.advice if not view.status.advice else ""
    if not new and not advice:
        return plan
    events = tuple(
        Event(
            type="Normal" if c.type == "StorageReady" and c.status == "True" else "Warning",
            reason=c.reason if c.type in LASTING else c.type,
            message=c.message,
        )
        for c in new
    )
    if advice:
        events = (*events, Event(type="Normal", reason=ADVICE, message=advice))
    return replace(plan, transition=True, actions=(), answers={}, events=(*plan.events, *events))


def left_alone(view: View) -> Plan | None:
    """The plan for a run of another installation: do nothing; None: it is ours."""
    holder = view.status.holder
    if view.observation.installation.may_lead(holder):
        return None
    message = f"the operator in namespace {name_of(holder)} leads this run"
    return Plan(reason="LedElsewhere", message=message, status=view.status)


def taken_over(view: View) -> Plan | None:
    """The first plan for an unfinished run that another holder has led; None: none has."""
    holder = view.status.holder
    if holder in ("", view.observation.installation.holder) or view.status.finished:
        return None
    return transitions.take_over(view, name_of(holder))


def claimed(view: View, plan: Plan) -> Plan:
    """The plan, or first the write that makes the run ours."""
    holder = view.observation.installation.holder
    if plan.status.holder == holder:
        return plan
    status = replace(plan.status, holder=holder)
    return replace(plan, status=status, transition=True, actions=(), answers={})


def named_first(view: View, plan: Plan) -> Plan:
    """The plan, or first the write that names the workers that it deletes."""
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
