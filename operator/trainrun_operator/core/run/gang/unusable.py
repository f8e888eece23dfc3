"""Workers that cannot take part: failed starts, and pods of a spec that was edited since.

Layer: core. A start has failed if workers end, stay silent, or lack image or configuration before
they join; one that only waits for room has not failed. Each worker counts in one gathering only:
the next incident needs new ones. A pod's own fields show whether it is outdated; where they are
unknown, it is not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from trainrun_operator.api.run.launching import TEMPLATE
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import WorkerFact
from trainrun_operator.core.run.causes import CAUSES
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.incidents.losses import Loss, loss_at
from trainrun_operator.core.run.view import View

START_TRIES = 3
"""Workers of a slot that may end before they join an attempt; then it is an incident."""

BOUNDED = ("ImagePull", "ConfigError")
"""What a worker may lack for health.startTimeout at most; it may wait for room without limit."""


def failed_start(view: View) -> Loss | None:
    """The failed start of this gathering, of the lowest slot; None: none."""
    counts = failed_starts(view)
    created: dict[int, list[WorkerFact]] = {}
    for worker in view.workers:  # in the order of slots
        if worker.slot < view.config.replicas and created_now(view, worker):
            created.setdefault(worker.slot, []).append(worker)
    for slot, started in created.items():
        ended = [w for w in started if w.phase == "Ended" and _own_fault(w)]
        if ended and (number := counts[str(slot)]) >= START_TRIES:
            return _loss(ended[-1], f"is number {number} of slot {slot} {_end(ended[-1])}")
        for worker in reversed(started):
            if view.is_unreachable(worker):
                continue  # its node has failed, and it is about to be replaced
            if never_called(view, worker) and not view.is_unknown(worker):
                what = "runs, but its agent has not called within"
                return _loss(worker, f"{what} {_start_timeout(view)}{_the_way(view)}")
            if cannot_start(view, worker) and worker.pending is not None:
                what = f"has not started within {_start_timeout(view)}"
                return _loss(worker, f"{what}: {worker.pending.message}")
    return None


def _the_way(view: View) -> str:
    """Names what an agent in a cluster must reach: the chart's Service has this name and port."""
    operator = view.observation.installation.name
    return operator and (
        "; its log says why. It must reach the Service trainrun-agents in namespace "
        f"{operator}, port 8443: a NetworkPolicy may block that"
    )


def ended_now(view: View) -> list[WorkerFact]:
    """Ended workers that were created in this gathering."""
    return [w for w in view.workers if w.phase == "Ended" and created_now(view, w)]


def failed_starts(view: View) -> dict[str, int]:
    """By slot, how many workers ended by themselves before they took part, including those deleted
    to make room."""
    ended = Counter(str(w.slot) for w in ended_now(view) if _own_fault(w))
    return dict(ended + Counter(view.status.failed_starts))


def _end(worker: WorkerFact) -> str:
    code = "" if worker.exit_code is None else f" (last exit code {worker.exit_code})"
    why = "" if worker.loss is None else f": {worker.loss.message}"
    return f"that ended before it took part{code}{why}"


def _start_timeout(view: View) -> str:
    return f"health.startTimeout ({view.config.start_timeout.total_seconds():.0f} s)"


def _loss(worker: WorkerFact, what: str) -> Loss:
    seen = worker.loss
    loss = loss_at(worker, Cause.START_FAILED, f"worker {worker.name} {what}")
    code = worker.exit_code if seen is None or seen.exit_code is None else seen.exit_code
    return replace(loss, exit_code=code, container="" if seen is None else seen.container)


def created_now(view: View, worker: WorkerFact) -> bool:
    """Whether it was created in this gathering: not for an earlier attempt or incident."""
    ending = view.status.ending
    if ending is not None and worker.age > view.observation.now - ending.time:
        return False
    return worker.created_for > view.status.attempt


def _own_fault(worker: WorkerFact) -> bool:
    explained = worker.loss is not None and not CAUSES[worker.loss.cause].fault_of_start
    return not explained and worker.notice is None  # a mere SIGTERM may be its own fault


def never_called(view: View, worker: WorkerFact) -> bool:
    """Whether its containers run, but its agent has not called for too long."""
    # Not counted from its creation: it may have waited longer than that for room or its image.
    return (
        worker.phase == "Running"
        and worker.agent is None
        and not view.is_unreadable(worker)  # it has called
        and min(worker.ran_for, view.observation.listening_for) > view.config.start_timeout
    )


def cannot_start(view: View, worker: WorkerFact) -> bool:
    """Whether its image or configuration has been missing for too long."""
    return (
        worker.phase == "Pending"
        and worker.pending is not None
        and worker.pending.kind in BOUNDED
        and worker.pending.since > view.config.start_timeout
    )


def outdated(worker: WorkerFact, config: RunConfig) -> str:
    """The field of the spec that has changed since the worker was created; "": none has."""
    if worker.template_hash != config.template_hash:
        return TEMPLATE
    made, now = worker.storage, config.storage
    if made is None:
        return ""
    if made.endpoint_url != now.endpoint_url:
        return "storage.endpointURL"
    if made.region != now.region:
        return "storage.region"
    if made.credentials != now.credentials:
        return "storage.credentialsSecretRef"
    return ""
