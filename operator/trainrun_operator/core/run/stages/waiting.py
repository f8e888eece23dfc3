"""Plans that wait for workers, the store, uploads or a second reader, and say for which.

Layer: core. A waiting plan changes nothing durable; every pass makes it again. Meanwhile workers
read ahead the checkpoint that the attempt will most likely resume from: a wrong guess costs only a
download, since the attempt gets the checkpoint that slot 0's agent claims. While a second node
reads a checkpoint that one node has misread (see `storage`), nothing is set aside and nothing is
counted.
"""

from __future__ import annotations

from datetime import timedelta

from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.resources import RESTART
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import Condition, Distrusted, StartRecord
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run import answers, transitions
from trainrun_operator.core.run.boundary import Action, Plan
from trainrun_operator.core.run.display import condition, gathering_phase, refreshed, whole
from trainrun_operator.core.run.drain import away_from, to_flush
from trainrun_operator.core.run.gang import roster as gang
from trainrun_operator.core.run.gang.holding import held
from trainrun_operator.core.run.incidents.attribution import sender_awaited
from trainrun_operator.core.run.incidents.losses import Loss
from trainrun_operator.core.run.steps import newest_known
from trainrun_operator.core.run.storage import (
    OUTSIDE,
    asked_again,
    asked_in_vain,
    lasted,
    node_of,
    paused,
    suspicion,
)
from trainrun_operator.core.run.view import View

CONTINUES = f"; give the annotation {RESTART} a new value to continue the run"
"""Added to a verdict about the store."""

IDLE_CHECK = timedelta(seconds=5)
"""Look again at least this often while a run waits."""


def wait(
    view: View,
    reason: str,
    message: str,
    *,
    actions: tuple[Action, ...],
    marks: tuple[Condition, ...] = (),
    resolve: bool = False,
    after: timedelta = IDLE_CHECK,
) -> Plan:
    """Wait while the next attempt is prepared; `marks`: conditions with details."""
    shown = next((m.reason for m in marks if m.status == "False"), reason)
    claimed = gang.claimed(view)
    status = refreshed(
        view,
        view.status,
        phase=gathering_phase(view),
        reason=shown,
        waiting_for=message,
        marks=marks,
    )
    if resolve or away_from(view):  # uploads also ask the store
        status = replace(status, store_wait=asked_again(view, answered=claimed is not None))
    return Plan(
        reason=reason,
        message=message,
        status=status,
        actions=actions,
        answers=answers.gathering(
            view,
            gang.lead(view),
            resolve=resolve,
            claimed=claimed,
            held=held(view),
            prefetch=prefetched(view),
        ),
        requeue_after=min(after, IDLE_CHECK, view.next_silence),
    )


def store_wait(
    view: View,
    reason: str,
    message: str,
    *,
    grace: timedelta | None,
    actions: tuple[Action, ...] = (),
    marks: tuple[Condition, ...] = (),
    resolve: bool = True,
    hint: str = "",
) -> Plan:
    """Wait for the store, at most for `grace`; then fail. None: without a limit.

    `marks`: further conditions; `resolve`: slot 0's agent asks; `hint`: added to the message while
    the run waits.
    """
    vain = asked_in_vain(view, reason)
    if grace is not None and lasted(view, vain) > grace:
        later = CONTINUES if reason in OUTSIDE else ""
        plan = transitions.fail(view, reason, message + later)
        # Later edits are compared with this.
        return replace(plan, status=replace(plan.status, store_wait=paused(view, vain)))
    message += hint
    mark = condition(view, "StorageReady", "False", reason, message)
    plan = wait(view, reason, message, actions=actions, marks=(mark, *marks), resolve=resolve)
    return replace(plan, status=replace(plan.status, store_wait=vain))


def wait_for_sender(view: View, reason: str) -> Plan | None:
    """Wait for the end of a worker that got SIGTERM; None: its end would show nothing new."""
    if not sender_awaited(view, view.status.incident):
        return None
    message = "waiting for a worker that got SIGTERM to end, which shows who sent it"
    return wait(view, reason, message, actions=())


def prefetched(view: View) -> dict[str, CheckpointId]:
    """By worker name, the checkpoint to read ahead for its node: the lowest slot of each node, as
    once the attempt runs."""
    likely = _likely(view)
    if likely is None:
        return {}
    found: dict[str, str] = {}
    for worker in gang.choose(view):
        if worker is not None and worker.agent is not None:
            found.setdefault(worker.node or worker.agent.node or worker.name, worker.name)
    return dict.fromkeys(found.values(), likely)


def _likely(view: View) -> CheckpointId | None:
    """The newest checkpoint in the store; None while a newer one is being uploaded."""
    known, flush = newest_known(view), to_flush(view)
    if known is None or not flush:
        return known
    return known if (known.attempt, known.step) >= (view.status.attempt, max(flush)) else None


def end_reread(view: View, record: StartRecord) -> Plan | None:
    """The checkpoint of the running attempt was read a second time.

    Correctly, on another node: the first reader is replaced. Wrongly again: return to the
    checkpoint before it.
    """
    found = suspicion(view)
    if found is None:
        return None
    if found.alone:
        taken = remember_node(view)
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
    return transitions.open_incident(view, record, loss, distrust=node)


def remember_node(view: View) -> Plan | None:
    """Write down a node that is no longer believed alone about checkpoints; None: there is none.

    A node that must be believed is written down first: it may carry out the order to read again
    without its report arriving.
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
        f"{found.what}: {found.message}; no other node of the run can read it, so this node is "
        "believed, about this checkpoint only"
    )
    return transitions.distrust(view, Distrusted(node=node, but_for=found.recheck.id), message)


def wait_for_reader(view: View, message: str) -> Plan:
    """The checkpoint for the next attempt reads wrongly on slot 0's node."""
    marks = (whole(view), *reread_marks(view))
    shown = marks[-1].message if len(marks) > 1 else message
    return wait(view, "CheckpointSuspect", shown, actions=(), marks=marks, resolve=True)


def reread_marks(view: View) -> tuple[Condition, ...]:
    """The condition about a second reading, or about what to do if no node can do it."""
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
        f"{what}; one node alone is not believed, and no other node of the run can read it. Let a "
        "worker run on another node, or read it elsewhere with `trainrun checkpoints --verify`; if "
        "it is damaged, `trainrun checkpoints set-aside` makes the run continue from the one before"
    )
    return (condition(view, "CheckpointSuspect", "True", "NoSecondReader", message),)
