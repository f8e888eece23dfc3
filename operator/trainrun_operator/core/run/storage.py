"""What workers tell of the store: whom it refuses, how long it is away, and who reads wrongly.

Layer: core; below `display`. Only time counts in which somebody asked it: not without room, not
while the run is suspended, not without workers. A worker that the store refuses is made anew now
and then, since a pod has the keys that its Secret held when it was made.

One witness is not enough: a checkpoint whose content reads wrongly on one node may be good, for
that node's memory or network may be at fault. Level-triggered, from what agents say and from
`status.distrusted` (nodes whose word is not enough any more), so that any leader goes on where the
one before stopped. Invariant: without a second reader on another node at most one checkpoint is set
aside on the word of a node.
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
"""Reasons of the condition StorageReady that somebody ends who repairs what is around the run."""

RENEWED_AFTER = (30, 60, 120, 300)
"""Seconds until workers that the store refuses are made anew; the last again and again."""


def told(view: View, worker: WorkerFact) -> Resolution | None:
    """What the store has told this worker last about the next attempt."""
    found = worker.agent.resolution if worker.agent is not None else None
    return found if found is not None and found.attempt == view.next_attempt else None


def refusal(view: View, worker: WorkerFact) -> Resolution | None:
    """The answer of a store that does not take the credentials or settings of this worker."""
    found = told(view, worker)
    return found if found is not None and found.outcome == "Misconfigured" else None


def is_made_anew(view: View, worker: WorkerFact) -> bool:
    """It is refused still, and another one is to take its place."""
    known = view.status.store_wait
    is_old = known is not None and worker.created_for <= known.renewed_to
    return is_old and refusal(view, worker) is not None


def remedy(view: View) -> str:
    """Where its user corrects what a worker is refused for."""
    secret = view.config.storage.credentials
    where = f"storage.credentialsSecretRef (Secret {secret})" if secret else "workers.template"
    return f"Correct the credentials of spec.{where}, or what the store names"


def is_due(view: View, wait: StoreWait) -> bool:
    """Those that are refused are to be made anew now."""
    begun = wait.renewed or wait.since or view.observation.now
    after = RENEWED_AFTER[min(wait.renewals, len(RENEWED_AFTER) - 1)]
    # What lies ahead was written by a leader whose clock was ahead of ours.
    return not timedelta(0) <= view.observation.now - begun < timedelta(seconds=after)


def has_worked(view: View) -> bool:
    """The store has taken a claim of this run before."""
    return view.status.storage_generation > 0


def lasted(view: View, wait: StoreWait) -> timedelta:
    """For how long it was asked in vain, as far as this leader and the status know."""
    now = view.observation.now
    asked = min(now - (wait.since or now), view.observation.listening_for)
    return timedelta(seconds=wait.waited) + max(asked, timedelta(0))


def asked_in_vain(view: View, reason: str) -> StoreWait:
    """The wait for it, which goes on or begins."""
    known = view.status.store_wait
    one = OUTSIDE if has_worked(view) else {reason}
    if known is None or (known.reason != reason and not {known.reason, reason} <= one):
        known = StoreWait(reason=reason)
    return replace(
        known, reason=reason, since=known.since or view.observation.now, spec=view.config.reaches
    )


def paused(view: View, wait: StoreWait | None) -> StoreWait | None:
    """Nobody asks it now."""
    if wait is None or wait.since is None:
        return wait
    return replace(wait, since=None, waited=round(lasted(view, wait).total_seconds(), 3))


def asked_again(view: View, *, answered: bool) -> StoreWait | None:
    """It is asked, and has not said yet that it refuses or is away; `answered`: one worker has had
    an answer."""
    known = view.status.store_wait
    if known is None or (answered and known.reason != REFUSES):
        return None
    return replace(known, since=known.since or view.observation.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A checkpoint that reads wrongly somewhere."""

    worker: WorkerFact
    """Where: of several workers the one of the lowest slot."""
    recheck: Recheck
    generation: int
    """Of the run's folder: where it is."""
    message: str
    reader: WorkerFact | None
    """Who is to read it again: on another node, or where there is none the same worker, unless the
    word of its node was taken about another checkpoint. None: nobody."""

    @property
    def found(self) -> Rechecked | None:
        """What the reader has found."""
        agent = self.reader.agent if self.reader is not None else None
        done = agent.rechecked if agent is not None else None
        return done if done is not None and done.recheck == self.recheck else None

    @property
    def alone(self) -> bool:
        """No other node can read it."""
        return self.reader is None or self.reader.name == self.worker.name

    @property
    def refuted(self) -> bool:
        """Another node reads it well: the worker is to be replaced."""
        return not self.alone and self.found is not None and self.found.good

    @property
    def confirmed(self) -> bool:
        """It was read wrongly a second time, and set aside."""
        return self.found is not None and not self.found.good

    @property
    def what(self) -> str:
        """The beginning of every sentence about it."""
        return f"checkpoint {self.recheck.id.name} reads wrongly on node {node_of(self.worker)}"

    @property
    def outcome(self) -> str:
        """What the second reader has found."""
        if self.refuted and self.reader is not None:
            return f"{self.what}, and well on node {node_of(self.reader)}: {self.message}"
        return f"checkpoint {self.recheck.id.name} is damaged: {self.message}"


def suspicion(view: View) -> Suspicion | None:
    """The checkpoint of the running attempt, or the one that the next attempt would start from."""
    record = view.running
    return _of_resolution(view) if record is None else _of_attempt(view, record)


def _of_attempt(view: View, record: StartRecord) -> Suspicion | None:
    # Whoever has not joined yet is another node all the same, and will be heard.
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
        if (found := told(view, w)) is not None and found.suspect is not None
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
    distrusted = {known.node: known.but_for for known in view.status.distrusted}
    others = [w for w in there if node_of(w) != node_of(worker) and node_of(w) not in distrusted]
    alone = worker if distrusted.get(node_of(worker), checkpoint) == checkpoint else None
    return min(others, key=lambda other: other.agent is None, default=alone)


def node_of(worker: WorkerFact) -> str:
    """The node that it is on, as the world or its agent knows it."""
    return worker.node or (worker.agent.node if worker.agent is not None else "")


def misreads(view: View, worker: WorkerFact) -> bool:
    """It reads wrongly what another node reads well: it takes part in no further attempt."""
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
    """The plan, with the order to read again in the answer of whoever is to do it."""
    found = None if plan.transition or view.status.finished else suspicion(view)
    if found is None or found.reader is None or found.reader.name not in plan.answers:
        return plan
    name = found.reader.name
    answer = replace(plan.answers[name], recheck=found.recheck, generation=found.generation)
    return replace(plan, answers={**plan.answers, name: answer})
