"""Storage problems reported by workers: refused workers, an unavailable store, misread checkpoints.

Layer: core; below `display`. Only the time counts in which some worker asked the store: not without
room, not while the run is suspended, not without workers. A worker that the store refuses is
recreated now and then, since a pod keeps the keys that its Secret had at its creation.

One witness is not enough: a checkpoint that reads wrongly on one node may be good, since the
node's memory or network may be at fault. Level-triggered, from the agents' reports and from
`status.distrusted` (nodes whose report alone is no longer enough), so that any leader continues
where the previous one stopped. Invariant: without a second reader on another node, at most one
checkpoint is set aside on the report of a node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from trainrun.contract.agent_state import Rechecked, Resolution, Suspect
from trainrun.contract.answer import Recheck
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status import StartRecord
from trainrun_operator.api.run.status_parts import Cause, StoreWait
from trainrun_operator.core.run.boundary import Plan, WorkerFact
from trainrun_operator.core.run.view import View

AWAY, REFUSES = "StorageUnavailable", "StorageMisconfigured"
OUTSIDE = {AWAY, REFUSES}
"""Reasons of the condition StorageReady that are repaired outside the run."""

RENEWED_AFTER = (30, 60, 120, 300)
"""Seconds until refused workers are recreated, each time; the last value repeats."""


def resolution_of(view: View, worker: WorkerFact) -> Resolution | None:
    """The store's last answer to this worker about the next attempt."""
    found = worker.agent.resolution if worker.agent is not None else None
    return found if found is not None and found.attempt == view.next_attempt else None


def refusal(view: View, worker: WorkerFact) -> Resolution | None:
    """The answer of a store that does not take the credentials or settings of this worker."""
    found = resolution_of(view, worker)
    return found if found is not None and found.outcome == "Misconfigured" else None


def is_recreated(view: View, worker: WorkerFact) -> bool:
    """It is still refused, and a new worker must take its place."""
    known = view.status.store_wait
    is_old = known is not None and worker.created_for <= known.renewed_to
    return is_old and refusal(view, worker) is not None


def remedy(view: View) -> str:
    """How the user corrects the reason for a refusal."""
    secret = view.config.storage.credentials
    where = f"storage.credentialsSecretRef (Secret {secret})" if secret else "workers.template"
    return f"Correct the credentials of spec.{where}, or what the store names"


def is_due(view: View, wait: StoreWait) -> bool:
    """Refused workers must be recreated now."""
    begun = wait.renewed or wait.since or view.observation.now
    after = RENEWED_AFTER[min(wait.renewals, len(RENEWED_AFTER) - 1)]
    # A time in the future was written by a leader whose clock was ahead of ours.
    return not timedelta(0) <= view.observation.now - begun < timedelta(seconds=after)


def has_worked(view: View) -> bool:
    """The store has accepted a claim of this run before."""
    return view.status.storage_generation > 0


def lasted(view: View, wait: StoreWait) -> timedelta:
    """How long the store was asked without success, as far as this leader and the status know."""
    now = view.observation.now
    asked = min(now - (wait.since or now), view.observation.listening_for)
    return timedelta(seconds=wait.waited) + max(asked, timedelta(0))


def asked_in_vain(view: View, reason: str) -> StoreWait:
    """The wait for the store, continued or begun."""
    known = view.status.store_wait
    one = OUTSIDE if has_worked(view) else {reason}
    if known is None or (known.reason != reason and not {known.reason, reason} <= one):
        known = StoreWait(reason=reason)
    return replace(
        known, reason=reason, since=known.since or view.observation.now, spec=view.config.reaches
    )


def paused(view: View, wait: StoreWait | None) -> StoreWait | None:
    """The wait while no worker asks the store."""
    if wait is None or wait.since is None:
        return wait
    return replace(wait, since=None, waited=round(lasted(view, wait).total_seconds(), 3))


def asked_again(view: View, *, answered: bool) -> StoreWait | None:
    """The wait while the store is asked and has not refused or failed yet; `answered`: some worker
    has an answer."""
    known = view.status.store_wait
    if known is None or (answered and known.reason != REFUSES):
        return None
    return replace(known, since=known.since or view.observation.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A checkpoint that some worker has read wrongly."""

    worker: WorkerFact
    """The worker that read it; of several, the lowest slot."""
    recheck: Recheck
    generation: int
    """The generation of the run's folder that contains it."""
    message: str
    reader: WorkerFact | None
    """The worker that must read it again: on another node; without one, the same worker, unless its
    node was believed about another checkpoint. None: no worker."""

    @property
    def found(self) -> Rechecked | None:
        """The result of the reader; None: not yet known."""
        agent = self.reader.agent if self.reader is not None else None
        done = agent.rechecked if agent is not None else None
        return done if done is not None and done.recheck == self.recheck else None

    @property
    def alone(self) -> bool:
        """No other node can read it."""
        return self.reader is None or self.reader.name == self.worker.name

    @property
    def refuted(self) -> bool:
        """Another node reads it correctly: the worker must be replaced."""
        return not self.alone and self.found is not None and self.found.good

    @property
    def confirmed(self) -> bool:
        """It was read wrongly a second time, and set aside."""
        return self.found is not None and not self.found.good

    @property
    def what(self) -> str:
        """The beginning of every message about it."""
        return f"checkpoint {self.recheck.id.name} reads wrongly on node {node_of(self.worker)}"

    @property
    def outcome(self) -> str:
        """The result of the second reading, in words."""
        if self.refuted and self.reader is not None:
            return f"{self.what}, and well on node {node_of(self.reader)}: {self.message}"
        return f"checkpoint {self.recheck.id.name} is damaged: {self.message}"


def suspicion(view: View) -> Suspicion | None:
    """The suspicion about the running attempt's checkpoint, or about the next attempt's."""
    record = view.running
    return _of_resolution(view) if record is None else _of_attempt(view, record)


def _of_attempt(view: View, record: StartRecord) -> Suspicion | None:
    # A worker that has not joined yet still counts as another node: it will join.
    there = tuple(w for w in view.roster if w is not None)
    suspects = [
        (w, agent.suspect)
        for w in there
        if (agent := view.joined(w)) is not None
        and agent.suspect is not None
        and agent.suspect.id == record.resume_point
    ]
    return _suspicion(view, suspects, there, attempt=view.status.attempt)


def _of_resolution(view: View) -> Suspicion | None:
    there = tuple(
        w
        for w in view.workers
        if w.phase == "Running" and not w.deleting and w.loss is None and w.agent is not None
    )
    suspects = [
        (w, found.suspect)
        for w in there
        if (found := resolution_of(view, w)) is not None and found.suspect is not None
    ]
    return _suspicion(view, suspects[-1:], there, attempt=view.next_attempt)


def _suspicion(
    view: View,
    suspects: list[tuple[WorkerFact, Suspect]],
    there: tuple[WorkerFact, ...],
    *,
    attempt: int,
) -> Suspicion | None:
    if not suspects:
        return None
    worker, first = suspects[0]
    files = tuple(sorted({file for _, suspect in suspects for file in suspect.files}))
    found = worker.agent.resolution if worker.agent is not None else None
    generation = view.status.storage_generation or (found.generation if found is not None else 0)
    recheck = Recheck(attempt=attempt, id=first.id, files=files)
    return Suspicion(
        worker=worker,
        recheck=recheck,
        generation=generation,
        message=first.message,
        reader=_reader(view, worker, there, first.id),
    )


def _reader(
    view: View, worker: WorkerFact, there: tuple[WorkerFact, ...], checkpoint: CheckpointId
) -> WorkerFact | None:
    distrusted = {entry.node: entry.but_for for entry in view.status.distrusted}
    others = [w for w in there if node_of(w) != node_of(worker) and node_of(w) not in distrusted]
    alone = worker if distrusted.get(node_of(worker), checkpoint) == checkpoint else None
    return min(others, key=lambda other: other.agent is None, default=alone)


def node_of(worker: WorkerFact) -> str:
    """The worker's node, from the world or from its agent."""
    return worker.node or (worker.agent.node if worker.agent is not None else "")


def misreads(view: View, worker: WorkerFact) -> bool:
    """It misreads a checkpoint that another node reads correctly: it joins no further attempt."""
    agent, incident = worker.agent, view.status.incident
    if view.running is not None or agent is None:
        return False
    if agent.resolution is not None and agent.resolution.suspect is not None:
        found = suspicion(view)
        return found is not None and found.refuted and found.worker.name == worker.name
    if incident is None or incident.cause != Cause.MISREAD:
        return False
    return worker.name == incident.worker or agent.suspect is not None


def with_recheck(view: View, plan: Plan) -> Plan:
    """The plan, with the order to read again in the answer of the second reader."""
    found = None if plan.transition or view.status.finished else suspicion(view)
    if found is None or found.reader is None or found.reader.name not in plan.answers:
        return plan
    name = found.reader.name
    answer = replace(plan.answers[name], recheck=found.recheck, generation=found.generation)
    return replace(plan, answers={**plan.answers, name: answer})
