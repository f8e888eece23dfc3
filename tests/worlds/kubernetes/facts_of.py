"""The fact about one worker, from raw JSON, in one call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.support.builders import an_agent
from tests.worlds.kubernetes.raw_objects import NOW, Raw
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.worlds.base import AgentContact
from trainrun_operator.worlds.kubernetes.observing.facts import worker_fact
from trainrun_operator.worlds.kubernetes.observing.nodes import NodeFact, node_fact
from trainrun_operator.worlds.kubernetes.observing.pods import pod_fact

NEVER = AgentContact(state=None, silent_for=timedelta(seconds=60))


def heard(silent_for: float = 1) -> AgentContact:
    return AgentContact(state=an_agent(), silent_for=timedelta(seconds=silent_for))


def fact(
    pod: Raw,
    node: Raw | NodeFact | None = None,
    agent: AgentContact = NEVER,
    *,
    passed: float = 0,
    **more: Any,
) -> WorkerFact:
    """What is known so many seconds after NOW."""
    known = pod_fact(pod)
    assert known is not None
    given: dict[str, Any] = {"training_container": "worker"} | more
    return worker_fact(
        known,
        node_fact(node) if isinstance(node, dict) else node,
        agent,
        now=NOW + timedelta(seconds=passed),
        **given,
    )


def lost(found: WorkerFact) -> tuple[Cause, str]:
    """Cause and message of its loss."""
    assert found.loss is not None
    return found.loss.cause, found.loss.message


def noticed(found: WorkerFact) -> tuple[str, float, float | None]:
    """Reason, age and remaining seconds of its notice."""
    assert found.notice is not None
    return found.notice.reason, found.notice.age, found.notice.remaining
