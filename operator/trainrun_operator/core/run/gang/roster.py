"""Which workers take the slots of the next attempt, which are missing and which must go.

Layer: core. Workers that still answer keep their slot (their processes restart in place); a worker
that left the roster never returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from trainrun.contract.agent_state import Resolution
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
from trainrun_operator.core.run.storage import has_worked, is_made_anew, is_refused, misreads, told
from trainrun_operator.core.run.unreachable import is_looked_for, newcomer
from trainrun_operator.core.run.view import View, notice_of, once, worker_name

COUNTED = "count/pods"
"""The resource of a quota that counts pods which have ended, too."""
QUOTA_SETTLES = timedelta(seconds=3)
"""A quota is behind by about a second; a place that is about to be free costs no logs."""
MAKES_ROOM = "another worker is refused by a quota on count/pods, which counts ended pods, too"
"""Why a worker is kept for its logs no longer."""
UNHEARD = "its agent does not answer"
"""Why a worker that is silent, or never called, is replaced."""
HOLDS_ROOM = "its training has ended, and other containers of its pod hold the room"
"""Why a worker is not kept for its logs."""


@once
def choose(view: View) -> tuple[WorkerFact | None, ...]:
    """For each slot the worker that will take it, None where one must be created."""
    chosen: list[WorkerFact | None] = [None] * view.config.replicas
    for worker in view.workers:  # ascending creation: the newest usable one wins
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
    """Of two usable workers of a slot: the one that took part in the last attempt, or the newer."""
    return next((w for w in view.roster if w is not None and w is older), newer)


def usable(view: View, worker: WorkerFact) -> bool:
    """The worker can take part in the next attempt, now or once it has started."""
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
    """Why it cannot take part, whatever the spec asks for; None: it can."""
    if worker.loss is not None:
        return worker.loss.message
    if view.is_cut_off(worker):
        return f"its node {worker.node} is lost: {worker.suspect_node}"
    if view.is_silent(worker) or never_called(view, worker):
        return UNHEARD
    if cannot_start(view, worker) and worker.pending is not None:
        return worker.pending.message
    if _stuck(view, worker):
        return "its processes do not stop"
    if hangs(view, worker):
        return "its agent gets no answer from the store"
    if is_made_anew(view, worker):
        return "the store refuses it, and only a new one has the keys that its Secret holds now"
    if avoids_needlessly(view, worker):
        return "it finds no room, and a node that it keeps away from may be used again"
    if misreads(view, worker):
        return "it reads a checkpoint wrongly that another node reads well"
    return None


def _left_behind(view: View, worker: WorkerFact) -> bool:
    """An older worker of a slot whose newest start record names another one."""
    if view.record is None or worker.slot >= len(view.record.roster):
        return False
    return worker.created_for < view.record.roster[worker.slot]


def _stuck(view: View, worker: WorkerFact) -> bool:
    """It was told long ago to stop its processes and has not done so (drivers and NFS can hang)."""
    until = flush_until(view)
    if until is None or worker.agent is None or worker.agent.phase == "Idle":
        return False
    late = min(view.observation.now - until, view.observation.listening_for)
    return late > view.config.start_timeout


@once
def claimed(view: View) -> Resolution | None:
    """What slot 0's agent has claimed for the next attempt."""
    first = lead(view)
    found = told(view, first) if first is not None else None
    return found if found is not None and found.outcome == "Resolved" else None


def is_unproven(view: View, worker: WorkerFact) -> bool:
    """It has still to read what slot 0's agent has claimed: each has credentials, and a way to the
    store, of its own."""
    point, found = claimed(view), told(view, worker)
    if point is None or worker.slot == 0 or worker.agent is None:
        return False
    if point.resume is None and not has_worked(view):
        return False
    return found is None or (found.outcome, found.resume) != ("Resolved", point.resume)


@once
def _unreached(view: View) -> tuple[WorkerFact, ...]:
    """Workers that do not reach the store to read what slot 0's agent has claimed there."""
    return tuple(
        worker
        for worker in view.workers
        if is_unproven(view, worker)
        and (found := told(view, worker)) is not None
        and found.outcome == "Unavailable"
    )


def hangs(view: View, worker: WorkerFact) -> bool:
    """Its agent answers, but what it was asked for the next attempt does not come back.

    A call of the store hangs, most likely, or it is the only one that does not reach the store;
    another worker may be luckier, on another node.
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


def ready(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[WorkerFact, ...]:
    """The chosen workers whose agents answer, and have done what they were told."""
    return tuple(w for w in chosen if w is not None and is_ready(view, w))


def is_ready(view: View, worker: WorkerFact) -> bool:
    """Its agent has been heard lately, has done what this Hold says, and waits for an order; the
    store does not refuse it."""
    return (
        worker.agent is not None
        and worker.agent.phase == "Idle"
        and worker.agent.attempt <= view.status.attempt
        and acknowledged(view, worker.agent)
        and worker.silent_for <= view.config.heartbeat_timeout
        and not worker.unreadable
        and not is_refused(view, worker)
    )


def creations(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[CreateWorker, ...]:
    """Workers to create for the slots that have none."""
    avoid, disfavor = avoided(view), disfavored(view)
    return tuple(
        _creation(view, slot, avoid=avoid, disfavor=disfavor)
        for slot, worker in enumerate(chosen)
        if worker is None
    )


def looking(view: View) -> tuple[CreateWorker, ...]:
    """Who is to look whether a gang that nobody hears trains on; made once, on another node."""
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
    """Workers that hold room and cannot take part any more.

    Ended ones stay until the next attempt runs (their creation numbers must not be used again, and
    their logs may be wanted), unless other containers of theirs hold the room; one under notice,
    or with another template, still finishes its uploads.
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
    """Delete it, where there is a reason: once, or by force where nobody there can confirm it."""
    force = view.is_unreachable(worker) and view.config.force_delete_pods
    if not reason or (worker.deleting and not force):
        return ()
    return (DeleteWorker(name=worker.name, reason=reason, force=force),)


def deletions(view: View, workers: Iterable[WorkerFact], reason: str) -> tuple[DeleteWorker, ...]:
    """Delete these, all for one reason."""
    return tuple(action for worker in workers for action in deletion(view, worker, reason))


def _dismissal(view: View, worker: WorkerFact, *, flushing: bool) -> str:
    if worker.phase == "Ended":
        # One that was created for the attempt to come counts among those that cannot start.
        holds = worker.holds_room and not created_now(view, worker)
        return HOLDS_ROOM if holds else ""
    if worker.slot >= view.config.replicas:
        return "its slot is gone"
    if (why := _failing(view, worker)) is not None:
        incident = view.status.incident
        of_it = incident is not None and incident.worker == worker.name
        # Our own deletion would hide who sent it SIGTERM.
        return "" if why == UNHEARD and of_it and sender_awaited(view, incident) else why
    if not flushing and not awaited(view, worker) and (reason := _is_not_wanted(view, worker)):
        return reason
    kept = choose(view)[worker.slot]  # it was made to look, or while an older one was not heard
    if kept is not None and kept.created_for < worker.created_for and is_ready(view, kept):
        return f"worker {kept.name} keeps its slot"
    return "it was replaced" if _left_behind(view, worker) else ""


def _is_not_wanted(view: View, worker: WorkerFact) -> str:
    """Why another one takes its place though it is well; "": none does."""
    if leaves := must_leave(view, worker):
        return leaves
    if edited := outdated(worker, view.config):
        return f"{edited} has changed"
    # After a SIGTERM alone its agent leaves by itself, and the end of its pod tells who sent it.
    if worker.notice is not None and _has_left(view, worker):
        return f"it will be taken away, and has nothing left to do ({worker.notice.reason})"
    return ""


def _has_left(view: View, worker: WorkerFact) -> bool:
    """It does nothing any more, or never took part; one that was never heard may have work."""
    return worker not in view.roster or (worker.agent is not None and worker.agent.phase == "Idle")


def kept_on_lost_nodes(view: View) -> str:
    """What to say of deleted workers that no node confirms, where none is deleted by force."""
    kept = [w for w in view.workers if w.deleting and view.is_unreachable(w)]
    if not kept or view.config.force_delete_pods:
        return ""
    names = ", ".join(f"{w.name} on node {w.node}" for w in kept[:5])
    return (
        f"deleted, and not confirmed, since the node is lost and spec.health.forceDeletePods is "
        f"false: {names}. What they hold of quota and volumes they keep until the node is back, or "
        f"until somebody deletes them: kubectl delete pod {kept[0].name} --grace-period=0 --force"
    )


@once
def surplus(view: View) -> tuple[DeleteWorker, ...]:
    """Ended workers of earlier attempts beyond those that are kept for their logs."""
    kept, (ended, _) = view.config.retain_failed_workers, _ended(view)
    return tuple(
        action
        for number, w in enumerate(ended, start=kept - len(ended))
        for action in deletion(view, w, _surplus(w, beyond=number < 0))
    )


@once
def making_room(view: View) -> tuple[DeleteWorker, ...]:
    """Ended workers in whose place others are refused by a quota that counts them: the oldest
    first, whoever wants their logs. What is being deleted makes room by itself."""
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
    """The highest number of creation of this gathering's workers, where one that has ended makes
    room: what is known of it is written first. 0: none does."""
    gone = {action.name for action in making_room(view)}
    early = [w for w in ended_now(view) if w.name in gone]
    return max(w.created_for for w in view.workers) if early else 0


def _ended(view: View) -> tuple[list[WorkerFact], list[WorkerFact]]:
    """Those of earlier attempts, and of the last one: the newest last; without those that count
    among what could not start."""
    names = {w.name for w in view.roster if w is not None}
    ended = [w for w in view.workers if w.phase == "Ended" and not created_now(view, w)]
    ended.sort(key=lambda w: (w.created_for, -w.slot))
    return [w for w in ended if w.name not in names], [w for w in ended if w.name in names]


def _surplus(worker: WorkerFact, *, beyond: bool) -> str:
    if worker.holds_room:
        return HOLDS_ROOM
    return "its logs are no longer kept (retainFailedWorkers)" if beyond else ""
