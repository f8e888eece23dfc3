"""Workers that are not heard while nothing else says that they are lost: what is told, and a look.

Layer: core. A node that is cut off from the operators alone holds a whole gang at times: it trains
on and commits. So before a gang that nobody hears is given up, a new worker for slot 0, on another
node, looks into the storage, where the owner beats; it claims nothing. That the owner was seen
alive is remembered as the reason of the condition. Then the new worker goes; another looks later.
"""

from __future__ import annotations

from datetime import timedelta

from trainrun.contract.agent_state import OwnerLife
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.storage import told
from trainrun_operator.core.run.view import View, and_others

UNREACHABLE = "Unreachable"
"""Type of the condition."""
NOT_HEARD, TRAINS_ON = "NotHeard", "TrainsOn"
"""Its reasons; the second one: the storage shows that slot 0's agent lives, which beats there."""

LOOK_AGAIN = timedelta(minutes=10)
"""Until the storage is looked at again, if the gang is not heard before."""


def warning(view: View) -> tuple[str, str]:
    """Reason and message while a worker of the attempt that runs is not heard: of the lowest slot,
    and how many others."""
    found = view.unheard
    if not found:
        return "", ""
    others = and_others(len(found))
    node = f" on node {found[0].node}" if found[0].node else ""
    reason, what = NOT_HEARD, "it may train on"
    if trains_on(view):
        reason = TRAINS_ON
        what = "the storage shows that slot 0's agent is alive, and its ranks may train on"
    return reason, (
        f"worker {found[0].name}{node}{others} is not heard by this operator; {what}, and nothing "
        "is counted for that. See whether its node reaches the operator: is the name of the "
        "operator's Service found there (hostNetwork needs dnsPolicy: ClusterFirstWithHostNet), "
        "and is no NetworkPolicy in the way? If the worker is dead, delete it"
    )


def trains_on(view: View) -> bool:
    """The owner of the storage was seen alive, now or a short while ago."""
    if _seen(view) == "Moves":
        return True
    condition, now = view.status.condition(UNREACHABLE), view.observation.now
    return (
        condition is not None
        and condition.reason == TRAINS_ON
        and now - condition.last_transition_time < LOOK_AGAIN
    )


def in_doubt(view: View) -> bool:
    """Nobody of the gang is heard, no other fact speaks against it, and the storage may tell.

    Not for ever, where the one that is to look finds no room or gets no answer: for
    health.startTimeout. One that runs and is not heard either says that the gang is not at fault.
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
    """A new worker of slot 0 is to look into the storage."""
    return view.running is not None and in_doubt(view) and not trains_on(view)


def looker(view: View) -> WorkerFact | None:
    """The worker that is to look now, once it is there."""
    return newcomer(view) if is_looked_for(view) else None


def newcomer(view: View) -> WorkerFact | None:
    """The newest worker of slot 0 that was made since the attempt was started; not one that looked
    long ago, and does not go."""
    record = view.running
    newer = (w for w in reversed(view.workers) if w.slot == 0 and not _looked_long_ago(view, w))
    return next((w for w in newer if record and w.created_for > record.roster[0]), None)


def _looked_long_ago(view: View, worker: WorkerFact) -> bool:
    found = told(view, worker)
    if found is None or not looked(view, worker):
        return False
    return timedelta(seconds=found.age) + worker.silent_for >= LOOK_AGAIN


def looked(view: View, worker: WorkerFact) -> OwnerLife | None:
    """What it has seen of the owner, if it was made to look while this attempt runs."""
    found = told(view, worker)
    return found.owner if found is not None and found.outcome == "Looked" else None


def _seen(view: View) -> OwnerLife | None:
    looking = newcomer(view)
    return looked(view, looking) if looking is not None else None
