"""Workers that send no heartbeat, without other signs of a loss: the warning, and a check.

Layer: core. A whole gang may be cut off from the operators alone: it still trains and commits. So
before such a gang is given up, a new worker for slot 0, on another node, looks into the storage,
where the owner renews its beat; it claims nothing. If the owner is alive, the reason of the
condition records it. Then the new worker leaves; another one looks later.
"""

from __future__ import annotations

from datetime import timedelta

from trainrun.contract.agent_state import OwnerLife
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.storage import resolution_of
from trainrun_operator.core.run.view import View, and_others

UNREACHABLE = "Unreachable"
"""Type of the condition."""
NOT_HEARD, TRAINS_ON = "NotHeard", "TrainsOn"
"""Its reasons; TrainsOn: slot 0's agent renews its beat in the storage, so it is alive."""

LOOK_AGAIN = timedelta(minutes=10)
"""Time until the next look into the storage, unless the gang sends a heartbeat before."""


def warning(view: View) -> tuple[str, str]:
    """Reason and message while workers of the running attempt send no heartbeat: the worker of the
    lowest slot, and the number of others."""
    found = view.unheard
    if not found:
        return "", ""
    others = and_others(len(found))
    node = f" on node {found[0].node}" if found[0].node else ""
    reason, what = NOT_HEARD, "it may still be training"
    if trains_on(view):
        reason = TRAINS_ON
        what = "the storage shows that slot 0's agent is alive, and its ranks may still be training"
    return reason, (
        f"this operator gets no heartbeat from worker {found[0].name}{node}{others}; {what}, and "
        "nothing is counted for that. Check that its node resolves the name of the operator's "
        "Service (hostNetwork needs dnsPolicy: ClusterFirstWithHostNet) and that no NetworkPolicy "
        "blocks the way; if the worker is dead, delete it"
    )


def trains_on(view: View) -> bool:
    """Whether the owner of the storage was seen alive, now or in the last LOOK_AGAIN."""
    if _seen(view) == "Moves":
        return True
    condition, now = view.status.condition(UNREACHABLE), view.observation.now
    return (
        condition is not None
        and condition.reason == TRAINS_ON
        and now - condition.last_transition_time < LOOK_AGAIN
    )


def in_doubt(view: View) -> bool:
    """Whether no agent of the gang sends a heartbeat, no other fact shows a loss, and the storage
    may show more.

    If the new worker finds no room or gets no answer, this ends after health.startTimeout. If it
    runs and sends no heartbeat either, the gang is not at fault.
    """
    silent = all(
        w is not None and w.phase == "Running" and not w.suspect_node and view.is_silent(w)
        for w in view.roster
    )
    if not silent or _seen(view) == "Still":
        return False
    condition, looking = view.status.condition(UNREACHABLE), newcomer(view)
    deaf = looking is not None and looking.phase == "Running" and looking.agent is None
    if condition is None or condition.reason != NOT_HEARD or deaf:
        return True
    waited = view.observation.now - condition.last_transition_time
    return trains_on(view) or waited <= view.config.start_timeout


def is_looked_for(view: View) -> bool:
    """Whether a new worker of slot 0 must look into the storage."""
    return view.running is not None and in_doubt(view) and not trains_on(view)


def looker(view: View) -> WorkerFact | None:
    """The worker that must look now, once it exists."""
    return newcomer(view) if is_looked_for(view) else None


def newcomer(view: View) -> WorkerFact | None:
    """The newest worker of slot 0 that was created since the attempt started; not one that looked
    long ago and has not left."""
    record = view.running
    newer = (w for w in reversed(view.workers) if w.slot == 0 and not _looked_long_ago(view, w))
    return next((w for w in newer if record and w.created_for > record.roster[0]), None)


def _looked_long_ago(view: View, worker: WorkerFact) -> bool:
    found = resolution_of(view, worker)
    if found is None or not looked(view, worker):
        return False
    return timedelta(seconds=found.age) + worker.silent_for >= LOOK_AGAIN


def looked(view: View, worker: WorkerFact) -> OwnerLife | None:
    """What it has seen of the owner; None: it has not looked."""
    found = resolution_of(view, worker)
    return found.owner if found is not None and found.outcome == "Looked" else None


def _seen(view: View) -> OwnerLife | None:
    looking = newcomer(view)
    return looked(view, looking) if looking is not None else None
