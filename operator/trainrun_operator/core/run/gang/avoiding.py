"""Nodes that new workers are kept away from, or are better not put on.

Layer: core. The scheduler hears of a dead node from the node controller, 40 to 50 s late, and until
then likes it best: it is the emptiest. A worker that was put there would be one more to replace.
Of a node on which workers fail again and again, as on one with a broken GPU, it never hears.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run.causes import row_of

if TYPE_CHECKING:
    from trainrun_operator.api.run.status import Incident
    from trainrun_operator.core.run.observation import WorkerFact
    from trainrun_operator.core.run.view import View

LATELY = timedelta(minutes=1)
"""A node is kept away from for so long after it was lost, unless it was seen to come back. Then the
node controller has tainted it (node-monitor-grace-period: 40 s, since Kubernetes 1.32 50 s) and
nothing is placed there anyway."""

MOST = 32
"""Nodes at most: every one is a term that the scheduler looks at."""

REPEATED = 2
"""Incidents from which on a node is better not used: one may be anybody's fault."""

REMEMBERED = timedelta(days=1)
"""An incident speaks against its node for so long; until then somebody has looked at the node."""


def avoided(view: View) -> tuple[str, ...]:
    """Names of nodes that must not be used, in order."""
    lately = {i.node for i in view.status.told_incidents if _is_still_lost(view, i)}
    lost = {w.node for w in view.workers if view.is_unreachable(w) or _fell_silent(view, w)}
    return tuple(sorted((lately | lost) - {""}))[:MOST]


def disfavored(view: View) -> tuple[str, ...]:
    """Names of nodes that others are preferred to, in order.

    Never more than that: the script may be at fault, and a run must not end up without a node.
    """
    now, told = view.observation.now, view.status.told_incidents
    asked = {i.node for i in told if _asked_for(i) and now - i.time < REMEMBERED}
    times = Counter(
        i.node
        for i in told
        if row_of(i.cause).against_node != "Never"
        and not i.collateral
        and now - i.time < REMEMBERED
    )
    repeated = {node for node, n in times.items() if n >= REPEATED}
    return tuple(sorted((asked | repeated) - {""}))


def must_leave(view: View, worker: WorkerFact) -> bool:
    """A rule has ended its attempt with a restart that avoids its node."""
    return bool(worker.node) and any(
        _asked_for(i) and i.node == worker.node and worker.created_for <= i.attempt
        for i in view.status.told_incidents
    )


def _asked_for(incident: Incident) -> bool:
    return incident.action == "RestartAvoidingNode"


def avoids_in_vain(view: View, worker: WorkerFact) -> bool:
    """It finds no room, and keeps away from a node that may be used again by now."""
    return (
        bool(worker.avoids)
        and worker.pending is not None
        and worker.pending.kind == "Unschedulable"
        and not set(worker.avoids) <= set(avoided(view))
    )


def _is_still_lost(view: View, incident: Incident) -> bool:
    now, back = view.observation.now, view.observation.ready_since.get(incident.node)
    return (
        (row_of(incident.cause).against_node == "AtOnce" or _asked_for(incident))
        and now - incident.time < LATELY
        and (back is None or back <= incident.time)
    )


def _fell_silent(view: View, worker: WorkerFact) -> bool:
    """Its agent is not heard, and nobody else is on its node."""
    # What has ended is kept for its logs, and silent for ever.
    return (
        worker.phase == "Running"
        and view.is_silent(worker)
        and not any(other.node == worker.node and _is_heard(view, other) for other in view.workers)
    )


def _is_heard(view: View, worker: WorkerFact) -> bool:
    # Agents call three times in a heartbeat timeout: whoever missed one may be on the way out too.
    return (
        worker.agent is not None
        and worker.silent_for is not None
        and 2 * worker.silent_for < view.config.heartbeat_timeout
    )
