"""decide(): the one pure function that drives a run through its whole life.

Layer: core. It reads no clock, does no I/O and logs nothing; the same observation and configuration
give the same plan, whatever the order of the workers. See docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.core.run.display import LASTING, news
from trainrun_operator.core.run.history import with_history
from trainrun_operator.core.run.incidents.dismissal import named_first
from trainrun_operator.core.run.plan import Event, Plan
from trainrun_operator.core.run.stages import claiming, finished, gathering, running
from trainrun_operator.core.run.status_size import fitted
from trainrun_operator.core.run.story import told
from trainrun_operator.core.run.suspicion import with_recheck
from trainrun_operator.core.run.view import View

if TYPE_CHECKING:
    from trainrun_operator.core.run.config import RunConfig
    from trainrun_operator.core.run.observation import Observation

ADVICE = "ImportsDominate"
"""Reason of the event that recommends a warm start."""


def decide(observation: Observation, config: RunConfig) -> Plan:
    """What to do now about a run."""
    view = View(observation=observation, config=config)
    if (elsewhere := claiming.left_alone(view)) is not None:
        return elsewhere
    plan = claiming.taken_over(view) or named_first(view, _staged(view))
    plan = claiming.claimed(view, plan)
    # Fitted first: a warning that finds no room would be new in every pass.
    plan = _announced(view, replace(plan, status=fitted(plan.status)))
    return with_recheck(view, told(view, with_history(plan, observation.now)))


def _staged(view: View) -> Plan:
    if view.status.finished:
        return finished.decide(view)
    if view.running is None:
        return gathering.decide(view)
    return running.decide(view, view.running)


def _announced(view: View, plan: Plan) -> Plan:
    """Warnings and advice that are new become a status write, so that each is told once."""
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
