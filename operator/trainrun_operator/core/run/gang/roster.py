"""Which workers take the slots of the next attempt, which are missing, and which must be deleted.

Layer: core. Workers that still answer keep their slot (their processes restart in place); a worker
that left the roster never returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from trainrun.contract.agent_state import AgentState, Resolution
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker, WorkerFact
from trainrun_operator.core.run.drain import acknowledged, flush_until, still_flushing
from trainrun_operator.core.run.gang.avoiding import (
    MOST,
    avoided,
    avoids_needlessly,
    disfavored,
    must_leave,
)
from trainrun_operator.core.run.gang.unusable import (
    cannot_start,
    created_now,
    ended_now,
    never_called,
    outdated,
)
from trainrun_operator.core.run.incidents.attribution import awaited, sender_awaited
from trainrun_operator.core.run.storage import (
    has_worked,
    is_recreated,
    misreads,
    refusal,
    resolution_of,
)
from trainrun_operator.core.run.unreachable import is_looked_for, newcomer
from trainrun_operator.core.run.view import View, notice_of, once, worker_name

COUNTED = "count/pods"
"""The resource of a quota that also counts ended pods."""
QUOTA_SETTLES = timedelta(seconds=3)
"""A quota lags by about a second: no logs are deleted for room that is about to be free."""
MAKES_ROOM = "a quota on count/pods, which includes ended pods, refuses another worker"
"""Why an ended worker is deleted with its logs."""
UNRESPONSIVE = "its agent does not answer"
"""Why a worker that is silent, or never called, is replaced."""
HOLDS_ROOM = "its training has ended, but other containers of its pod still hold the room"
"""Why an ended worker is not kept for its logs."""


@once
def choose(view: View) -> tuple[WorkerFact | None, ...]:
    """For each slot the worker that will take it; None where one must be created."""
    chosen: list[WorkerFact | None] = [None] * view.config.replicas
    for worker in view.workers:  # by ascending creation: the newest usable one wins
        if worker.slot < len(chosen) and usable(view, worker):
            chosen[worker.slot] = _better(view, chosen[worker.slot], worker)
    return tuple(chosen)


def lead(view: View) -> WorkerFact | None:
    """The worker that will take slot 0, as `choose` has it."""
    found: WorkerFact | None = None
    for worker in view.workers:
        if worker.slot == 0 and usable(view, worker):
            found = _better(view, found, worker)
    return found


def _better(view: View, older: WorkerFact | None, newer: WorkerFact) -> WorkerFact:
    """The better of two usable workers of a slot: one of the last attempt, else the newer."""
    return next((w for w in view.roster if w is not None and w is older), newer)


def usable(view: View, worker: WorkerFact) -> bool:
    """Whether the worker can take part in the next attempt, now or once it has started."""
    return (
        worker.phase != "Ended"
        and not worker.deleting
        and not outdated(worker, view.config)
        and notice_of(worker) is None
        and not _left_behind(view, worker)
        and _failing(view, worker) is None
        and not must_leave(view, worker)
    )


def _failing(view: View, worker: WorkerFact) -> str | None:
    """Why it cannot take part, whatever the spec says; None: it can."""
    if worker.loss is not None:
        return worker.loss.message
    if view.is_cut_off(worker):
        return f"its node {worker.node} is lost: {worker.suspect_node}"
    if view.is_silent(worker) or never_called(view, worker):
        return UNRESPONSIVE
    if cannot_start(view, worker) and worker.pending is not None:
        return worker.pending.message
    if _stuck(view, worker):
        return "its processes do not stop"
    if hangs(view, worker):
        return "its agent gets no answer from the store"
    if is_recreated(view, worker):
        return "the store refuses it, and only a new worker gets the current keys of its Secret"
    if avoids_needlessly(view, worker):
        return "it finds no room, and a node that it avoids may be used again"
    if misreads(view, worker):
        return "it misreads a checkpoint that another node reads correctly"
    return None


def _left_behind(view: View, worker: WorkerFact) -> bool:
    """Whether it is older than the worker of its slot in the newest start record."""
    if view.record is None or worker.slot >= len(view.record.roster):
        return False
    return worker.created_for < view.record.roster[worker.slot]


def _stuck(view: View, worker: WorkerFact) -> bool:
    """Whether it should have stopped its processes long ago and has not (drivers and NFS hang)."""
    until = flush_until(view)
    if until is None or worker.agent is None or worker.agent.phase == "Idle":
        return False
    late = min(view.observation.now - until, view.observation.listening_for)
    return late > view.config.start_timeout


@once
def claimed(view: View) -> Resolution | None:
    """What slot 0's agent has claimed for the next attempt."""
    first = lead(view)
    found = resolution_of(view, first) if first is not None else None
    return found if found is not None and found.outcome == "Resolved" else None


def is_unproven(view: View, worker: WorkerFact) -> bool:
    """Whether it has not yet read what slot 0's agent claimed: each worker has credentials and a
    path to the store of its own."""
    point, found = claimed(view), resolution_of(view, worker)
    if point is None or worker.slot == 0 or worker.agent is None:
        return False
    if point.resume is None and not has_worked(view):
        return False
    return found is None or (found.outcome, found.resume) != ("Resolved", point.resume)


@once
def _unreached(view: View) -> tuple[WorkerFact, ...]:
    """Workers that cannot reach the store to read what slot 0's agent claimed there."""
    return tuple(
        worker
        for worker in view.workers
        if is_unproven(view, worker)
        and (found := resolution_of(view, worker)) is not None
        and found.outcome == "Unavailable"
    )


def hangs(view: View, worker: WorkerFact) -> bool:
    """Whether its agent answers, but does not finish what the next attempt needs.

    Most likely a call of the store hangs, or this worker alone cannot reach the store; a worker on
    another node may succeed.
    """
    if worker.slot != 0 and not is_unproven(view, worker):
        return False
    agent, whole = worker.agent, view.status.condition("WorkersReady")
    if agent is None or whole is None or whole.status != "True" or not is_ready(view, worker):
        return False
    ending, until = view.status.ending, flush_until(view)
    found, now = agent.resolution, view.observation.now
    waited = [now - whole.last_transition_time, worker.age, view.observation.listening_for]
    if found is not None and (worker.slot == 0 or _unreached(view) != (worker,)):
        offered = agent.offer is not None and agent.offer.attempt == view.next_attempt
        if found.attempt == view.next_attempt and (found.outcome != "Resolved" or offered):
            return False
        waited.append(timedelta(seconds=found.age))
    if worker.slot != 0 and (point := claimed(view)) is not None:
        waited.append(timedelta(seconds=point.age))
    if ending is not None and until is not None:
        waited.append(now - max(until, ending.not_before or until))
    return min(waited) > view.config.start_timeout


Ready = tuple[tuple[WorkerFact, AgentState], ...]
"""Workers that wait for an order, with the states of their agents, by slot."""


def ready(view: View, chosen: tuple[WorkerFact | None, ...]) -> Ready:
    """The chosen workers whose agents answer and have carried out their orders."""
    there = ((w, w.agent) for w in chosen if w is not None and is_ready(view, w))
    return tuple((worker, agent) for worker, agent in there if agent is not None)


def is_ready(view: View, worker: WorkerFact) -> bool:
    """Whether its agent answers, has carried out this Hold and waits for an order, and the store
    does not refuse it."""
    return (
        worker.agent is not None
        and worker.agent.phase == "Idle"
        and worker.agent.attempt <= view.status.attempt
        and acknowledged(view, worker.agent)
        and worker.silent_for <= view.config.heartbeat_timeout
        and not worker.unreadable
        and refusal(view, worker) is None
    )


def creations(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[CreateWorker, ...]:
    """Workers to create for the slots without one."""
    avoid, disfavor = avoided(view), disfavored(view)
    return tuple(
        _creation(view, slot, avoid=avoid, disfavor=disfavor)
        for slot, worker in enumerate(chosen)
        if worker is None
    )


def looking(view: View) -> tuple[CreateWorker, ...]:
    """A worker to create, once and on another node: it checks if a gang without contact trains."""
    if not is_looked_for(view) or newcomer(view) is not None:
        return ()
    silent = sorted({w.node for w in view.roster if w is not None and w.node})
    return (_creation(view, 0, avoid=tuple(silent[:MOST]), disfavor=disfavored(view)),)


def _creation(
    view: View, slot: int, *, avoid: tuple[str, ...], disfavor: tuple[str, ...]
) -> CreateWorker:
    wait = view.status.store_wait
    replaced = wait.renewed_to if wait is not None else 0
    number = max(view.next_attempt, replaced + 1, _highest_creation(view, slot) + 1)
    return CreateWorker(
        name=worker_name(view.config, slot=slot, created_for=number),
        slot=slot,
        created_for=number,
        template_hash=view.config.template_hash,
        avoid=avoid,
        disfavor=disfavor,
    )


def _highest_creation(view: View, slot: int) -> int:
    numbers = [w.created_for for w in view.workers if w.slot == slot]
    refused = (r for r in view.observation.refused if r.slot == slot and r.reason == "NameTaken")
    numbers += [int(refusal.name.rpartition("-")[2]) for refusal in refused]
    if view.record is not None and slot < len(view.record.roster):
        numbers.append(view.record.roster[slot])
    return max(numbers, default=0)


def dismissals(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[DeleteWorker, ...]:
    """Deletions of workers that hold room and can no longer take part.

    Ended ones stay until the next attempt runs (their creation numbers must not be reused, and
    their logs may be wanted), unless their other containers hold the room; one under notice, or
    with another template, still finishes its uploads.
    """
    wanted = {w.name for w in chosen if w is not None}
    flushing = {w.name for w in still_flushing(view)}
    return tuple(
        action
        for w in view.workers
        if w.name not in wanted
        for action in deletion(view, w, _dismissal(view, w, flushing=w.name in flushing))
    )


def deletion(view: View, worker: WorkerFact, reason: str) -> tuple[DeleteWorker, ...]:
    """Delete it if there is a reason: once, or by force where its node cannot confirm it."""
    force = view.is_unreachable(worker) and view.config.force_delete_pods
    if not reason or (worker.deleting and not force):
        return ()
    return (DeleteWorker(name=worker.name, reason=reason, force=force),)


def deletions(view: View, workers: Iterable[WorkerFact], reason: str) -> tuple[DeleteWorker, ...]:
    """Delete all of these for one reason."""
    return tuple(action for worker in workers for action in deletion(view, worker, reason))


def _dismissal(view: View, worker: WorkerFact, *, flushing: bool) -> str:
    if worker.phase == "Ended":
        # One created for the coming attempt counts among those that cannot start.
        holds = worker.holds_room and not created_now(view, worker)
        return HOLDS_ROOM if holds else ""
    if worker.slot >= view.config.replicas:
        return "its slot no longer exists"
    if (why := _failing(view, worker)) is not None:
        incident = view.status.incident
        of_it = incident is not None and incident.worker == worker.name
        # Our own deletion would hide who sent it SIGTERM.
        return "" if why == UNRESPONSIVE and of_it and sender_awaited(view, incident) else why
    if not flushing and not awaited(view, worker) and (reason := _is_not_wanted(view, worker)):
        return reason
    kept = choose(view)[worker.slot]  # `worker` was made to look, or while this one was silent
    if kept is not None and kept.created_for < worker.created_for and is_ready(view, kept):
        return f"worker {kept.name} keeps its slot"
    return "it was replaced" if _left_behind(view, worker) else ""


def _is_not_wanted(view: View, worker: WorkerFact) -> str:
    """Why it is replaced although it works; "": it is not."""
    if leaves := must_leave(view, worker):
        return leaves
    if edited := outdated(worker, view.config):
        return f"{edited} has changed"
    # After a mere SIGTERM its agent leaves by itself, and the end of its pod shows the sender.
    if worker.notice is not None and _has_left(view, worker):
        return f"it will be taken away, and has no work left ({worker.notice.reason})"
    return ""


def _has_left(view: View, worker: WorkerFact) -> bool:
    """Whether it is idle, or took no part. One that sent no heartbeat may have work."""
    return worker not in view.roster or (worker.agent is not None and worker.agent.phase == "Idle")


def kept_on_lost_nodes(view: View) -> str:
    """The message about deletions that no node confirms, unless they are forced; "": none."""
    kept = [w for w in view.workers if w.deleting and view.is_unreachable(w)]
    if not kept or view.config.force_delete_pods:
        return ""
    names = ", ".join(f"{w.name} on node {w.node}" for w in kept[:5])
    return (
        f"deleted, but not confirmed, because the node is lost and spec.health.forceDeletePods is "
        f"false: {names}. They hold their quota and volumes until the node is back or you run "
        f"kubectl delete pod {kept[0].name} --grace-period=0 --force"
    )


@once
def surplus(view: View) -> tuple[DeleteWorker, ...]:
    """Deletions of ended workers of earlier attempts, beyond those kept for their logs."""
    kept, (ended, _) = view.config.retain_failed_workers, _ended(view)
    return tuple(
        action
        for number, w in enumerate(ended, start=kept - len(ended))
        for action in deletion(view, w, _surplus(w, beyond=number < 0))
    )


@once
def making_room(view: View) -> tuple[DeleteWorker, ...]:
    """Deletions of ended workers where a quota that counts them refuses new ones: the oldest first,
    in spite of their logs. A worker already being deleted makes room by itself."""
    refused = [
        r
        for r in view.observation.refused
        if r.reason == "QuotaExceeded" and COUNTED in r.message and r.since > QUOTA_SETTLES
    ]
    gone = {action.name for action in surplus(view)}
    short = len(refused) - len(gone) - sum(w.deleting for w in view.workers)
    parts = (*_ended(view), ended_now(view))
    ended = [w for part in parts for w in part if w.name not in gone]
    return deletions(view, ended[: max(short, 0)], MAKES_ROOM)


def forgotten(view: View) -> int:
    """The highest creation number of this gathering's workers, if an ended one is deleted to make
    room: the status must record it first. 0: none is."""
    gone = {action.name for action in making_room(view)}
    early = [w for w in ended_now(view) if w.name in gone]
    return max(w.created_for for w in view.workers) if early else 0


def _ended(view: View) -> tuple[list[WorkerFact], list[WorkerFact]]:
    """Ended workers of earlier attempts, and of the last one, the newest last; without those that
    count as failed starts."""
    names = {w.name for w in view.roster if w is not None}
    ended = [w for w in view.workers if w.phase == "Ended" and not created_now(view, w)]
    ended.sort(key=lambda w: (w.created_for, -w.slot))
    return [w for w in ended if w.name not in names], [w for w in ended if w.name in names]


def _surplus(worker: WorkerFact, *, beyond: bool) -> str:
    if worker.holds_room:
        return HOLDS_ROOM
    return "its logs are no longer kept (retainFailedWorkers)" if beyond else ""
