"""The stage in which the next attempt is prepared: judge, gather workers, resolve, barrier, start.

Layer: core. Entered when there is no running attempt; left by the start record, a verdict or a
suspension. Waiting here is never counted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from trainrun_operator.api.run.launching import TEMPLATE
from trainrun_operator.core.run import transitions
from trainrun_operator.core.run.causes import Explains
from trainrun_operator.core.run.display import condition, not_asked, whole
from trainrun_operator.core.run.flush import still_flushing
from trainrun_operator.core.run.gang import roster as gang
from trainrun_operator.core.run.gang import starting
from trainrun_operator.core.run.gang.avoiding import may_be_another
from trainrun_operator.core.run.gang.missing import PLACED, missing
from trainrun_operator.core.run.gang.outdated import outdated
from trainrun_operator.core.run.incidents import ledger, standstill
from trainrun_operator.core.run.incidents.attribution import (
    attribution_open,
    awaited,
    explains,
    refined,
)
from trainrun_operator.core.run.sigterm import still_ending
from trainrun_operator.core.run.stages import placement, suspecting
from trainrun_operator.core.run.stages.running import past_deadline
from trainrun_operator.core.run.stages.suspending import suspend
from trainrun_operator.core.run.stages.waiting import store_wait, wait
from trainrun_operator.core.run.view import counted, notice_of

if TYPE_CHECKING:
    from trainrun.contract.agent_state import Resolution
    from trainrun_operator.core.run.incidents.ledger import Verdict
    from trainrun_operator.core.run.observation import WorkerFact
    from trainrun_operator.core.run.plan import Action, Plan
    from trainrun_operator.core.run.view import View

CREDENTIALS_GRACE = timedelta(seconds=30)
"""A store that refuses us (credentials, bucket) is given this long: secrets arrive late."""

STORE_GRACE = timedelta(hours=1)
"""A store that cannot be reached is waited for this long; nothing is lost meanwhile."""

NOTHING_GOOD_GRACE = timedelta(minutes=1)
"""A store without a good checkpoint is asked again for this long: listings may lag."""

INVALID_GRACE = timedelta(seconds=10)
"""A template that the API server calls invalid is given this long: admission webhooks come and go.
"""


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
        return suspend(view)
    if status.is_true("Suspended"):
        return transitions.resumed(view)
    plan = past_deadline(view) or _unlaunchable(view) or _failed_start(view)
    plan = plan or _invalid_template(view)
    plan = plan or suspecting.remember(view)
    return plan if plan is not None else _gather(view)


def _judged(view: View) -> Plan | None:
    """Fail if the incident does not fit its budget; wait while its cause may still change."""
    if view.status.incident is None:
        return None
    incident = refined(view, view.status.incident)
    verdict: Verdict | None = ledger.judge(view.status, incident, view.config)
    if verdict is not None and verdict.allowed == "Restart":
        verdict = standstill.judge(view, incident)
    if verdict is None:
        return None
    if still := still_ending(view):
        # Killing them now would throw away what the next try of this run could go on from.
        message = f"waiting for {counted(len(still), 'worker')} to end after SIGTERM"
        return wait(view, "Stopping", message, actions=())
    if attribution_open(view, incident):
        why = "this may be a consequence; waiting for the other workers"
        if explains(incident) is Explains.LITTLE:
            why = "its node may explain it; waiting for news of the node"
        return wait(view, "Attributing", f"{incident.message}: {why}", actions=())
    return transitions.fail(view, verdict.reason, verdict.message)


def _failed_start(view: View) -> Plan | None:
    """Workers that cannot take part, before they ever did."""
    loss = starting.failed_start(view)
    return transitions.failed_to_start(view, loss) if loss is not None else None


def _unlaunchable(view: View) -> Plan | None:
    """Its command cannot be run. A run that has trained waits for a better one, and keeps what it
    has of workers."""
    if not view.template_problem:
        return None
    message = f"{TEMPLATE}: {view.template_problem}"
    if not view.status.attempt:
        return transitions.fail(view, "InvalidTemplate", message)
    return wait(view, "InvalidTemplate", message, actions=())


def _invalid_template(view: View) -> Plan | None:
    """No pod can be made from the template. A run that has trained waits for a better one."""
    for refused in view.observation.refused:
        if (
            refused.reason == "Invalid"
            and refused.since > INVALID_GRACE
            and not view.status.attempt
        ):
            message = f"the API server refuses pods made from workers.template: {refused.message}"
            return transitions.fail(view, "InvalidTemplate", message)
    return None


def _gather(view: View) -> Plan:
    if view.highest_attempt > view.status.attempt:
        return transitions.skip_to(view, view.highest_attempt)
    chosen = gang.choose(view)
    ready = gang.ready(view, chosen)
    create = gang.creations(view, chosen)
    dismiss = (*gang.dismissals(view, chosen), *gang.surplus(view))
    if len(ready) < view.config.replicas:
        return _incomplete(view, chosen, ready, actions=(*dismiss, *create))
    return _complete(view, ready, dismiss)


def _incomplete(
    view: View,
    chosen: tuple[WorkerFact | None, ...],
    ready: tuple[WorkerFact, ...],
    *,
    actions: tuple[Action, ...],
) -> Plan:
    """Some workers are still to come."""
    given_back = placement.decide(view, chosen)
    if given_back is not None:
        return given_back
    hung = next((w for w in view.workers if gang.hangs(view, w)), None)
    if hung is not None:
        limit = view.config.start_timeout.total_seconds()
        message = f"worker {hung.name} has had no answer from the store for {limit:.0f} s"
        message = f"{message}; another worker is tried"
        grace = _unavailable_grace(view)
        return store_wait(view, "StorageUnavailable", message, grace=grace, actions=actions)
    there = {w.slot for w in ready}
    slots = [str(slot) for slot in range(len(chosen)) if slot not in there]
    noun = "worker of slot" if len(slots) == 1 else "workers of slots"
    message = f"waiting for the {noun} {', '.join(slots[:10])}"
    trouble = missing(view, chosen)
    reason = "Gathering" if trouble is None else trouble.reason
    message = message if trouble is None else trouble.message
    mark = condition(view, "WorkersReady", "False", reason, message)
    idle = trouble is not None and trouble.reason != PLACED
    marks = (mark, *not_asked(view)) if idle else (mark,)
    return wait(view, "Gathering", message, actions=actions, marks=marks)


def _complete(view: View, ready: tuple[WorkerFact, ...], dismiss: tuple[Action, ...]) -> Plan:
    """Every worker waits for an order."""
    marks = (whole(view),)
    # Also of workers that leave: resolving now would fence what was saved on their notice.
    if uploading := sorted({worker.slot for worker in still_flushing(view)}):
        noun = "slot" if len(uploading) == 1 else "slots"
        message = f"waiting for the uploads of {noun} {', '.join(map(str, uploading[:10]))}"
        return wait(view, "Flushing", message, actions=dismiss, marks=marks)
    if may_be_another(view):
        message = "which node to keep away from is not known for sure yet; waiting for news of it"
        return wait(view, "Attributing", message, actions=dismiss, marks=marks)
    if (slot := _awaited_slot(view)) is not None:
        message = f"what ended the attempt is not known for sure yet; waiting for slot {slot}"
        return wait(view, "Attributing", message, actions=dismiss, marks=marks)
    until = view.status.ending.not_before if view.status.ending is not None else None
    left = until - view.observation.now if until is not None else timedelta(0)
    # What lies further ahead was written by a leader whose clock was ahead of ours.
    if until is not None and timedelta(0) < left <= ledger.longest_backoff(view.config):
        message = f"restarting at {until:%H:%M:%S} UTC (backoff)"
        return wait(view, "BackingOff", message, actions=dismiss, marks=marks, after=left)
    resolution = _resolution(view, ready)
    if resolution is None:
        message = "asking the store for the newest good checkpoint"
        return wait(view, "Resolving", message, actions=dismiss, marks=marks, resolve=True)
    return _resolved(view, ready, resolution)


def _awaited_slot(view: View) -> int | None:
    """An edit or a notice has made workers anew before one of the attempt could say what happened
    to it."""
    old = (w for w in view.roster if w is not None and _is_replaced(view, w))
    return next((worker.slot for worker in old if awaited(view, worker)), None)


def _is_replaced(view: View, worker: WorkerFact) -> bool:
    return bool(outdated(worker, view.config)) or notice_of(worker) is not None


def _resolution(view: View, ready: tuple[WorkerFact, ...]) -> Resolution | None:
    agent = ready[0].agent
    found = agent.resolution if agent is not None else None
    return found if found is not None and found.attempt == view.next_attempt else None


def _is_elsewhere(view: View, found: Resolution) -> bool:
    """What it has found is another run's: checkpoints of two generations have the same names."""
    return view.status.storage_generation not in (0, found.generation)


def _know_no_generations(ready: tuple[WorkerFact, ...], found: Resolution) -> list[WorkerFact]:
    """Workers with agents of version 0.1.0, which do not say what they hold either."""
    later = found.generation > 1
    return [worker for worker in ready if later and worker.agent and worker.agent.held is None]


def _resolved(view: View, ready: tuple[WorkerFact, ...], found: Resolution) -> Plan:
    match found.outcome:
        case "Resolved" if _is_elsewhere(view, found):
            message = (
                f"worker {ready[0].name} has looked into generation {found.generation} of the "
                f"run's folder, and the run is in generation {view.status.storage_generation}: its "
                "agent is of a version that knows none; give it an image with one of this version"
            )
            return store_wait(view, "StorageMisconfigured", message, grace=None)
        case "Resolved" if strangers := _know_no_generations(ready, found):
            message = (
                f"worker {strangers[0].name} would read generation 1 of the run's folder, and the "
                f"run is in generation {found.generation}: its agent is of a version that knows "
                "none; give it an image with one of this version"
            )
            return store_wait(view, "StorageMisconfigured", message, grace=None)
        case "Resolved":
            return _barrier(view, ready, found)
        case "Finished":
            message = found.message or "the store says that this run has succeeded before"
            return transitions.succeed(view, "AlreadyFinished", message)
        case "Suspect":
            return suspecting.wait_for_reader(view, found.message)
        case "Behind":
            return transitions.skip_to(view, found.highest_attempt)
        case "NotEmpty":
            return transitions.fail(view, "StorageNotEmpty", found.message)
        case "InUse":
            return store_wait(view, "StorageInUse", found.message, grace=None)
        case "NoGoodCheckpoint":
            return store_wait(view, found.outcome, found.message, grace=NOTHING_GOOD_GRACE)
        case "Unavailable":
            grace = _unavailable_grace(view)
            return store_wait(view, "StorageUnavailable", found.message, grace=grace)
        case "Misconfigured":
            return store_wait(view, "StorageMisconfigured", found.message, grace=CREDENTIALS_GRACE)
        case _:
            assert_never(found.outcome)


def _unavailable_grace(view: View) -> timedelta:
    return view.config.start_timeout if view.status.attempt == 0 else STORE_GRACE


def _barrier(view: View, ready: tuple[WorkerFact, ...], found: Resolution) -> Plan:
    """Everybody waits and the resume point is claimed: the start record can be written."""
    lead = ready[0].agent
    if lead is None or lead.offer is None or lead.offer.attempt != view.next_attempt:
        message = "slot 0 is looking for a free master port"
        marks = (whole(view),)
        return wait(view, "Barrier", message, actions=(), marks=marks, resolve=True)
    return transitions.start(view, ready, found)
