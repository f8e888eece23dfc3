"""Which workers take the slots of the next attempt, which are missing and which must go.

Layer: core. Workers that still answer keep their slot (their processes restart in place); a worker
that left the roster never returns.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.avoiding import avoided, avoids_in_vain, disfavored
from trainrun_operator.core.plan import CreateWorker, DeleteWorker
from trainrun_operator.core.starting import cannot_start, created_now, never_called
from trainrun_operator.core.view import View, notice_of, worker_name

if TYPE_CHECKING:
    from trainrun_operator.core.observation import Refused, WorkerFact


def choose(view: View) -> tuple[WorkerFact | None, ...]:
    """For each slot the worker that will take it, None where one must be created."""
    chosen: list[WorkerFact | None] = [None] * view.config.replicas
    for worker in view.workers:  # ascending creation: the newest usable one wins
        if worker.slot < len(chosen) and usable(view, worker):
            chosen[worker.slot] = worker
    return tuple(chosen)


def usable(view: View, worker: WorkerFact) -> bool:
    """The worker can take part in the next attempt, now or once it has started."""
    return (
        worker.phase != "Ended"
        and not worker.deleting
        and worker.loss is None
        and worker.template_hash == view.config.template_hash
        and notice_of(worker) is None
        and not view.is_silent(worker)
        and not _left_behind(view, worker)
        and not view.is_cut_off(worker)
        and not never_called(view, worker)
        and not cannot_start(view, worker)
        and not _stuck(view, worker)
        and not hangs(view, worker)
        and not avoids_in_vain(view, worker)
    )


def _left_behind(view: View, worker: WorkerFact) -> bool:
    """An older worker of a slot whose newest start record names another one."""
    if view.record is None or worker.slot >= len(view.record.roster):
        return False
    return worker.created_for < view.record.roster[worker.slot]


def _stuck(view: View, worker: WorkerFact) -> bool:
    """It was told long ago to stop its processes and has not done so (drivers and NFS can hang)."""
    ending = view.status.ending
    if ending is None or worker.agent is None or worker.agent.phase == "Idle":
        return False
    told = min(view.observation.now - ending.time, view.observation.listening_for)
    return told > view.config.flush_timeout + view.config.start_timeout


def hangs(view: View, worker: WorkerFact) -> bool:
    """Slot 0's agent answers, but what it was asked for the next attempt does not come back.

    A call of the store hangs, most likely; another worker may be luckier, on another node.
    """
    agent, ending = worker.agent, view.status.ending
    whole = view.status.condition("WorkersReady")
    if worker.slot != 0 or agent is None or whole is None or whole.status != "True":
        return False
    if not is_waiting(view, worker):
        return False
    found, now = agent.resolution, view.observation.now
    waited = [now - whole.last_transition_time, worker.age, view.observation.listening_for]
    if found is not None:
        offered = agent.offer is not None and agent.offer.attempt == view.next_attempt
        if found.attempt == view.next_attempt and (found.outcome != "Resolved" or offered):
            return False
        waited.append(timedelta(seconds=found.age))
    if ending is not None:
        waited.append(now - (ending.not_before or ending.time) - view.config.flush_timeout)
    return min(waited) > view.config.start_timeout


def ready(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[WorkerFact, ...]:
    """The chosen workers whose agents answer and have nothing left to stop or to upload."""
    return tuple(w for w in chosen if w is not None and is_waiting(view, w))


def is_waiting(view: View, worker: WorkerFact) -> bool:
    """Its agent has been heard lately and waits for an order."""
    return (
        worker.agent is not None
        and worker.agent.phase == "Idle"
        and worker.agent.attempt <= view.status.attempt
        and worker.silent_for is not None
        and worker.silent_for <= view.config.heartbeat_timeout
    )


def creations(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[CreateWorker, ...]:
    """Workers to create for the slots that have none."""
    avoid, disfavor = avoided(view), disfavored(view)
    return tuple(
        _creation(view, slot, avoid=avoid, disfavor=disfavor)
        for slot, worker in enumerate(chosen)
        if worker is None
    )


def _creation(
    view: View, slot: int, *, avoid: tuple[str, ...], disfavor: tuple[str, ...]
) -> CreateWorker:
    number = max(view.next_attempt, _highest_creation(view, slot) + 1)
    return CreateWorker(
        name=worker_name(view.config, slot=slot, created_for=number),
        slot=slot,
        created_for=number,
        template_hash=view.config.template_hash,
        avoid=avoid,
        disfavor=disfavor,
    )


def _highest_creation(view: View, slot: int) -> int:
    known = [w.created_for for w in view.workers if w.slot == slot]
    known += [_number(r.name) for r in view.observation.refused if _is_taken(r, slot)]
    if view.record is not None and slot < len(view.record.roster):
        known.append(view.record.roster[slot])
    return max(known, default=0)


def _is_taken(refused: Refused, slot: int) -> bool:
    return refused.slot == slot and refused.reason == "NameTaken"


def _number(name: str) -> int:
    """The number of creation in a worker's name."""
    return int(name.rpartition("-")[2])


def dismissals(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[DeleteWorker, ...]:
    """Workers that hold room and cannot take part any more.

    Ended ones stay until the next attempt runs (their creation numbers must not be used again, and
    their logs may be wanted); a worker under notice leaves by itself; one with another template
    still finishes its uploads.
    """
    wanted = {w.name for w in chosen if w is not None}
    return tuple(
        action
        for w in view.workers
        if w.name not in wanted and w.phase != "Ended"
        for action in deletion(view, w, _dismissal(view, w))
    )


def deletion(view: View, worker: WorkerFact, reason: str) -> tuple[DeleteWorker, ...]:
    """Delete it, where there is a reason: once, or by force where nobody there can confirm it."""
    force = view.is_unreachable(worker)
    if not reason or (worker.deleting and not force):
        return ()
    return (DeleteWorker(name=worker.name, reason=reason, force=force),)


def _dismissal(view: View, worker: WorkerFact) -> str:
    if worker.slot >= view.config.replicas:
        return "its slot is gone"
    if worker.loss is not None:
        return worker.loss.message
    if view.is_cut_off(worker):
        return f"its node {worker.node} is lost: {worker.suspect_node}"
    if view.is_silent(worker) or never_called(view, worker):
        return "its agent does not answer"
    if cannot_start(view, worker) and worker.waiting is not None:
        return worker.waiting.message
    if _stuck(view, worker):
        return "its processes do not stop"
    if hangs(view, worker):
        return "its agent gets no answer from the store"
    if avoids_in_vain(view, worker):
        return "it finds no room, and a node that it keeps away from may be used again"
    if worker.template_hash != view.config.template_hash and uploads_done(worker):
        return "the template has changed"
    return "it was replaced" if _left_behind(view, worker) else ""


def surplus(view: View) -> tuple[DeleteWorker, ...]:
    """Ended workers of earlier attempts beyond those that are kept for their logs."""
    kept = view.config.retain_failed_workers
    names = {w.name for w in view.roster if w is not None}
    ended = [
        w
        for w in view.workers
        if w.phase == "Ended" and w.name not in names and not created_now(view, w)
    ]
    newest_last = sorted(ended, key=lambda w: (w.created_for, -w.slot))
    return tuple(
        action
        for w in newest_last[: max(len(newest_last) - kept, 0)]
        for action in deletion(view, w, "its logs are kept no longer (retainFailedWorkers)")
    )


def uploads_done(worker: WorkerFact) -> bool:
    """Nothing of it is running or under way."""
    return worker.agent is None or worker.agent.phase == "Idle"
