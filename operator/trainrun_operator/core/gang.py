"""Which workers take the slots of the next attempt, which are missing and which must go.

Layer: core. Workers that still answer keep their slot (their processes restart in place); a worker
that left the roster never returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun_operator.core.causes import Cause
from trainrun_operator.core.plan import CreateWorker, DeleteWorker
from trainrun_operator.core.view import View, notice_of, worker_name

if TYPE_CHECKING:
    from trainrun_operator.core.observation import WorkerFact

START_TRIES = 3
"""So many workers of a slot may end before they joined an attempt; then it is an incident."""

OWN_FAULTS = (None, Cause.START_FAILED, Cause.UNKNOWN, Cause.APP_ERROR, Cause.OUT_OF_MEMORY)
"""Ends of a starting worker that its own template may have caused."""


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
        and not _never_called(view, worker)
        and not _stuck(view, worker)
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
    return tuple(_creation(view, slot) for slot, worker in enumerate(chosen) if worker is None)


def _creation(view: View, slot: int) -> CreateWorker:
    number = max(view.next_attempt, _highest_creation(view, slot) + 1)
    return CreateWorker(
        name=worker_name(view.config, slot=slot, created_for=number),
        slot=slot,
        created_for=number,
        template_hash=view.config.template_hash,
    )


def _highest_creation(view: View, slot: int) -> int:
    known = [w.created_for for w in view.workers if w.slot == slot]
    if view.record is not None and slot < len(view.record.roster):
        known.append(view.record.roster[slot])
    return max(known, default=0)


def dismissals(view: View, chosen: tuple[WorkerFact | None, ...]) -> tuple[DeleteWorker, ...]:
    """Workers that hold room and cannot take part any more.

    Ended ones stay until the next attempt runs (their creation numbers must not be used again, and
    their logs may be wanted); a worker under notice leaves by itself; one with another template
    still finishes its uploads.
    """
    return tuple(
        DeleteWorker(name=w.name, reason=reason)
        for w in view.workers
        if w not in chosen and w.phase != "Ended" and not w.deleting
        for reason in (_dismissal(view, w),)
        if reason
    )


def _dismissal(view: View, worker: WorkerFact) -> str:
    if worker.slot >= view.config.replicas:
        return "its slot is gone"
    if worker.loss is not None:
        return worker.loss.message
    if view.is_silent(worker) or _never_called(view, worker):
        return "its agent does not answer"
    if _stuck(view, worker):
        return "its processes do not stop"
    if worker.template_hash != view.config.template_hash and _uploads_done(worker):
        return "the template has changed"
    return "it was replaced" if _left_behind(view, worker) else ""


def _uploads_done(worker: WorkerFact) -> bool:
    return worker.agent is None or worker.agent.phase == "Idle"


def failed_starts(view: View) -> tuple[WorkerFact, ...]:
    """The workers of a slot that failed START_TRIES times to start, or one that never called.

    Each worker is looked at in one gathering only: the next incident needs new ones.
    """
    for slot in range(view.config.replicas):
        started = [w for w in view.workers if w.slot == slot and _created_now(view, w)]
        failed = [w for w in started if w.phase == "Ended" and _own_fault(w)]
        if len(failed) >= START_TRIES:
            return tuple(failed)
        mute = [w for w in started if _never_called(view, w)]
        if mute:
            return tuple(mute)
    return ()


def _created_now(view: View, worker: WorkerFact) -> bool:
    """Created in this gathering: not for an earlier attempt, nor for an incident told already."""
    ending = view.status.ending
    if ending is not None and worker.age > view.observation.now - ending.time:
        return False
    return worker.created_for > view.status.attempt


def _own_fault(worker: WorkerFact) -> bool:
    cause = worker.loss.cause if worker.loss is not None else None
    return cause in OWN_FAULTS and notice_of(worker) is None


def _never_called(view: View, worker: WorkerFact) -> bool:
    # Not since its creation: it may have waited for room, or for its image, for longer than that.
    running = worker.age if worker.running_for is None else worker.running_for
    return (
        worker.phase == "Running"
        and worker.agent is None
        and min(running, view.observation.listening_for) > view.config.start_timeout
    )
