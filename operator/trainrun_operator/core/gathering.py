"""The stage in which the next attempt is prepared: judge, gather workers, resolve, barrier, start.

Layer: core. Entered when there is no running attempt; left by the start record, a verdict or a
suspension. Waiting here is never counted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from trainrun_operator.core import answers, gang, ledger, transitions
from trainrun_operator.core.attribution import attribution_open, is_silence, refined
from trainrun_operator.core.causes import Cause
from trainrun_operator.core.display import (
    condition,
    gathering_phase,
    refreshed,
    since,
    with_condition,
)
from trainrun_operator.core.losses import Loss
from trainrun_operator.core.plan import Action, DeleteWorker, Plan
from trainrun_operator.core.running import IDLE_CHECK, deadline
from trainrun_operator.core.steps import open_steps

if TYPE_CHECKING:
    from trainrun.protocol import Resolution
    from trainrun_operator.core.observation import WorkerFact
    from trainrun_operator.core.view import View

CREDENTIALS_GRACE = timedelta(seconds=30)
"""A store that refuses us (credentials, bucket) is given this long: secrets arrive late."""

STORE_GRACE = timedelta(hours=1)
"""A store that cannot be reached is waited for this long; nothing is lost meanwhile."""

NOTHING_GOOD_GRACE = timedelta(minutes=1)
"""A store without a good checkpoint is asked again for this long: listings may lag."""

LEAVE_GRACE = timedelta(seconds=60)
"""Workers of a suspended or finished run that have not left by then are deleted."""


def decide(view: View) -> Plan:
    """The plan while no attempt runs."""
    status, config = view.status, view.config
    if status.start_time is None:
        return transitions.accept(view)
    verdict = _judged(view)  # before suspending: that would charge an incident beyond its budget
    if verdict is not None:
        return verdict
    if status.incident is not None and refined(view, status.incident) != status.incident:
        return transitions.refine(view, refined(view, status.incident))
    if config.suspend:
        return _suspend(view)
    if status.is_true("Suspended"):
        return transitions.resumed(view)
    plan = deadline(view) or _failed_start(view)
    return plan if plan is not None else _gather(view)


def _judged(view: View) -> Plan | None:
    """Fail if the incident does not fit its budget; wait while its cause may still change."""
    if view.status.incident is None:
        return None
    incident = refined(view, view.status.incident)
    verdict = ledger.judge(view.status, incident, view.config)
    if verdict.allowed == "Restart":
        return None
    if attribution_open(view, incident):
        why = "this may be a consequence; waiting for the other workers"
        if is_silence(incident):
            why = "its node may explain it; waiting for news of the node"
        return _wait(view, "Attributing", f"{incident.message}: {why}", actions=())
    return transitions.fail(view, verdict.reason, verdict.message)


def _failed_start(view: View) -> Plan | None:
    """Workers that end, or stay mute, before they ever joined."""
    failed = gang.failed_starts(view)
    if not failed:
        return None
    worker = failed[-1]
    if worker.phase == "Ended":
        code = "" if worker.exit_code is None else f" (last exit code {worker.exit_code})"
        what = f"is number {len(failed)} of slot {worker.slot} that ended before it took part{code}"
    else:
        limit = view.config.start_timeout.total_seconds()
        what = f"runs, but its agent has not called within health.startTimeout ({limit:.0f} s)"
    loss = Loss(
        slot=worker.slot,
        cause=Cause.START_FAILED,
        worker=worker.name,
        node=worker.node,
        exit_code=worker.exit_code,
        message=f"worker {worker.name} {what}",
    )
    return transitions.failed_to_start(view, loss)


def _gather(view: View) -> Plan:
    ahead = max((w.agent.attempt for w in view.workers if w.agent is not None), default=0)
    if ahead > view.status.attempt:  # the status was lost, or is stale: then this write conflicts
        return transitions.skip_to(view, ahead)
    chosen = gang.choose(view)
    ready = gang.ready(view, chosen)
    create, dismiss = gang.creations(view, chosen), gang.dismissals(view, chosen)
    if len(ready) < view.config.replicas:
        missing = [str(slot) for slot, w in enumerate(chosen) if w not in ready]
        message = f"waiting for the workers of slots {', '.join(missing[:10])}"
        return _wait(view, "Gathering", message, actions=(*dismiss, *create))
    if uploading := _uploading(view):
        message = f"waiting for the uploads of slots {', '.join(map(str, uploading[:10]))}"
        return _wait(view, "Flushing", message, actions=dismiss)
    ending = view.status.ending
    now = view.observation.now
    if ending is not None and ending.not_before is not None and now < ending.not_before:
        left = ending.not_before - now
        message = f"backing off until {ending.not_before:%H:%M:%S} UTC"
        return _wait(view, "BackingOff", message, actions=dismiss, after=left)
    resolution = _resolution(view, ready)
    if resolution is None:
        message = "asking the store for the newest good checkpoint"
        return _wait(view, "Resolving", message, actions=dismiss, resolve=True)
    return _resolved(view, ready, resolution)


def _uploading(view: View) -> tuple[int, ...]:
    """Slots whose old workers, although they leave, still upload what the ending named.

    Resolving before they are done would fence the very checkpoint that was saved on their notice.
    """
    ending = view.status.ending
    if ending is None or not ending.flush:
        return ()
    if view.observation.now - ending.time > view.config.flush_timeout:
        return ()
    old = ((slot, w) for slot, w in enumerate(view.roster) if w is not None and _answers(view, w))
    return tuple(
        slot
        for slot, worker in old
        if worker.agent is None
        or (view.joined(worker) is not None and worker.agent.phase != "Idle")
    )


def _resolution(view: View, ready: tuple[WorkerFact, ...]) -> Resolution | None:
    agent = ready[0].agent
    found = agent.resolution if agent is not None else None
    return found if found is not None and found.attempt == view.next_attempt else None


def _resolved(view: View, ready: tuple[WorkerFact, ...], found: Resolution) -> Plan:
    match found.outcome:
        case "Resolved":
            return _barrier(view, ready, found)
        case "Finished":
            message = found.message or "the store says that this run has succeeded before"
            return transitions.succeed(view, "AlreadyFinished", message)
        case "Behind":
            return transitions.skip_to(view, found.highest_attempt)
        case "NotEmpty":
            return transitions.fail(view, "StorageNotEmpty", found.message)
        case "InUse":
            return _store_wait(view, "StorageInUse", found.message, grace=None)
        case "NoGoodCheckpoint":
            return _store_wait(view, found.outcome, found.message, grace=NOTHING_GOOD_GRACE)
        case "Unavailable":
            first = view.status.attempt == 0
            grace = view.config.start_timeout if first else STORE_GRACE
            return _store_wait(view, "StorageUnavailable", found.message, grace=grace)
        case "Misconfigured":
            return _store_wait(view, "StorageMisconfigured", found.message, grace=CREDENTIALS_GRACE)
        case _:
            assert_never(found.outcome)


def _barrier(view: View, ready: tuple[WorkerFact, ...], found: Resolution) -> Plan:
    """Everybody waits and the resume point is claimed: the start record can be written."""
    lead = ready[0].agent
    if lead is None or lead.offer is None or lead.offer.attempt != view.next_attempt:
        message = "slot 0 is looking for a free master port"
        return _wait(view, "Barrier", message, actions=(), resolve=True)
    return transitions.start(view, ready, found)


def _store_wait(view: View, reason: str, message: str, *, grace: timedelta | None) -> Plan:
    """Wait for the store; unknown is not failed, but not for ever either."""
    waited = since(view.status, "StorageReady", reason, view.observation.now)
    if grace is not None and waited > grace:
        return transitions.fail(view, reason, message)
    plan = _wait(view, reason, message, actions=(), resolve=True)
    mark = condition(view, "StorageReady", "False", reason, message)
    status = plan.status.model_copy(
        update={"conditions": with_condition(plan.status.conditions, mark)}
    )
    return Plan(
        reason=reason,
        message=message,
        status=status,
        answers=plan.answers,
        requeue_after=plan.requeue_after,
    )


def _wait(
    view: View,
    reason: str,
    message: str,
    *,
    actions: tuple[Action, ...],
    resolve: bool = False,
    after: timedelta = IDLE_CHECK,
) -> Plan:
    return Plan(
        reason=reason,
        message=message,
        status=refreshed(view, view.status, phase=gathering_phase(view), waiting_for=message),
        actions=actions,
        answers=answers.gathering(view, gang.choose(view), resolve=resolve),
        requeue_after=min(after, IDLE_CHECK),
    )


def _suspend(view: View) -> Plan:
    """spec.suspend: finish uploads, give the storage back, leave."""
    if not view.status.is_true("Suspended"):
        busy = [w for w in view.workers if _is_busy(view, w)]
        if busy:
            message = f"waiting for {len(busy)} workers to stop and to finish their uploads"
            return _wait(view, "Suspending", message, actions=())
        if (step := _to_commit(view)) is not None:
            message = f"every worker has stored step {step}; waiting for its commit"
            return _wait(view, "Suspending", message, actions=())
        return transitions.suspended(view)
    mark = view.status.condition("Suspended")
    assert mark is not None
    return Plan(
        reason="Suspended",
        message="the run is suspended",
        status=refreshed(view, view.status, phase="Suspended"),
        actions=left_overs(view, waited=view.observation.now - mark.last_transition_time),
        answers=answers.leaving(view, code=0, succeeded=False),
        requeue_after=IDLE_CHECK if view.workers else None,
    )


def _is_busy(view: View, worker: WorkerFact) -> bool:
    """It still stops processes or uploads what the ending named, and is not hopeless."""
    if _waited_enough(view) or not _answers(view, worker):
        return False
    return worker.agent is None or worker.agent.phase != "Idle"


def _to_commit(view: View) -> int | None:
    """A step that is complete in the store and that slot 0's agent is about to commit.

    The next attempt would find it all the same; but whoever suspends wants to see it saved.
    """
    ending, lead = view.status.ending, view.roster[0] if view.roster else None
    if ending is None or lead is None or _waited_enough(view) or not _answers(view, lead):
        return None
    stored = (s.step for s in open_steps(view) if len(s.slots) == len(view.roster))
    return max((step for step in stored if step in ending.flush), default=None)


def _waited_enough(view: View) -> bool:
    ending = view.status.ending
    return ending is None or view.observation.now - ending.time > 2 * view.config.flush_timeout


def _answers(view: View, worker: WorkerFact) -> bool:
    return worker.phase != "Ended" and worker.loss is None and not view.is_silent(worker)


def left_overs(view: View, *, waited: timedelta) -> tuple[DeleteWorker, ...]:
    """Ended workers, and those that do not leave although they were told to."""
    return tuple(
        DeleteWorker(name=w.name, reason="the run is suspended")
        for w in view.workers
        if not w.deleting and (w.phase == "Ended" or w.agent is None or waited > LEAVE_GRACE)
    )
