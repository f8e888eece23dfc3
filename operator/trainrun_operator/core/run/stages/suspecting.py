"""What follows from a checkpoint that reads wrongly on one node: see `core.run.suspicion`.

Layer: core. While the second reader reads, the run waits; nothing is set aside and nothing counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.api.run.status import Distrusted
from trainrun_operator.core.run import transitions
from trainrun_operator.core.run.causes import Cause
from trainrun_operator.core.run.display import condition, whole
from trainrun_operator.core.run.incidents.losses import Loss
from trainrun_operator.core.run.stages.waiting import wait
from trainrun_operator.core.run.suspicion import node_of, suspicion

if TYPE_CHECKING:
    from trainrun_operator.api.run.status import Condition
    from trainrun_operator.core.run.plan import Plan
    from trainrun_operator.core.run.view import View


def end_attempt(view: View) -> Plan | None:
    """The checkpoint handed to the running attempt was read a second time.

    Well, on another node: that worker is replaced. Wrongly again: back to the one before it.
    """
    found = suspicion(view)
    if found is None:
        return None
    if found.alone:
        taken = remember(view)
        if taken is not None:
            return taken
    if not (found.refuted or found.confirmed):
        return None
    node = node_of(found.worker) if found.refuted else ""
    loss = Loss(
        slot=found.worker.slot,
        cause=Cause.MISREAD if found.refuted else Cause.CHECKPOINT_DAMAGED,
        worker=found.worker.name,
        node=node,
        message=found.outcome[:1000],
    )
    return transitions.open_incident(view, loss, frozenset(), distrust=node)


def remember(view: View) -> Plan | None:
    """Whose word is not enough from now on.

    Where a node's own word is to be taken this is written first: the order to read again may be
    carried out, and nobody hear of it.
    """
    found = suspicion(view)
    if found is None or found.reader is None or not (found.refuted or found.alone):
        return None
    node = node_of(found.worker)
    if any(known.node == node for known in view.status.distrusted):
        return None
    if found.refuted:
        return transitions.distrust(view, Distrusted(node=node), found.outcome)
    message = (
        f"{found.what}: {found.message}; no other node of the run can read it, so the word of this "
        "node is taken, about this checkpoint alone"
    )
    return transitions.distrust(view, Distrusted(node=node, but_for=found.recheck.id), message)


def wait_for_reader(view: View, message: str) -> Plan:
    """The checkpoint that the next attempt would start from reads wrongly on slot 0's node."""
    marks = (whole(view), *warning(view))
    shown = marks[-1].message if len(marks) > 1 else message
    return wait(view, "CheckpointSuspect", shown, actions=(), marks=marks, resolve=True)


def warning(view: View) -> tuple[Condition, ...]:
    """What is waited for, and what to do where nobody can read it."""
    found = suspicion(view)
    if found is None or found.confirmed:
        return ()
    what, reader = f"{found.what}: {found.message}", found.reader
    if reader is not None and found.found is None:
        who = "it" if found.alone else f"worker {reader.name} on node {node_of(reader)}"
        message = (
            f"{what}; {who} reads it again before anything is set aside, and no process gets it "
            "meanwhile"
        )
        return (condition(view, "CheckpointSuspect", "True", "ReadAgain", message),)
    message = (
        f"{what}; the word of this node alone is not enough, and no other node of the run can read "
        "it. Let a worker run on another node, or read it elsewhere with `trainrun checkpoints "
        "--verify`; where that finds it damaged, `trainrun checkpoints set-aside` lets the run go "
        "on from the one before"
    )
    return (condition(view, "CheckpointSuspect", "True", "NoSecondReader", message),)
