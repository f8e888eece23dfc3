"""decide(): the one pure function that drives a run through its whole life.

Layer: core. It reads no clock, does no I/O and logs nothing; the same observation and configuration
give the same plan, whatever the order of the workers. See docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.core import finished, gathering, running
from trainrun_operator.core.budget import fitted
from trainrun_operator.core.display import LASTING, news
from trainrun_operator.core.plan import Event, Plan
from trainrun_operator.core.view import View

if TYPE_CHECKING:
    from trainrun_operator.core.config import RunConfig
    from trainrun_operator.core.observation import Observation


def decide(observation: Observation, config: RunConfig) -> Plan:
    """What to do now about a run."""
    view = View(observation=observation, config=config)
    plan = _announced(view, _staged(view))
    return replace(plan, status=fitted(plan.status))


def _staged(view: View) -> Plan:
    if view.status.finished:
        return finished.decide(view)
    if view.running is None:
        return gathering.decide(view)
    return running.decide(view, view.running)


def _announced(view: View, plan: Plan) -> Plan:
    """Warnings that are new become a status write, so that each is told once."""
    new = news(view.status, plan.status)
    if not new:
        return plan
    events = tuple(
        Event(
            type="Normal" if c.type == "StorageReady" and c.status == "True" else "Warning",
            reason=c.reason if c.type in LASTING else c.type,
            message=c.message,
        )
        for c in new
    )
    return replace(plan, transition=True, actions=(), answers={}, events=(*plan.events, *events))
