"""The stage that prepares the next attempt: judge, gather workers, resolve, barrier, start.

Layer: core. Entered when no attempt runs; left by the start record, a verdict or a suspension.
Waiting here is never counted.
"""

from __future__ import annotations

from datetime import timedelta

from trainrun.contract.agent_state import Resolution
from trainrun_operator.api.run.launching import TEMPLATE
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import Condition
from trainrun_operator.api.run.status_parts import Ending
from trainrun_operator.core.run import transitions
from trainrun_operator.core.run.boundary import Action, Plan, WorkerFact
from trainrun_operator.core.run.causes import Explains
from trainrun_operator.core.run.display import condition, not_asked, whole
from trainrun_operator.core.run.drain import (
    away_from,
    ends_in_place,
    flush_left,
    outlasting,
    still_ending,
    still_flushing,
)
from trainrun_operator.core.run.gang import roster as gang
from trainrun_operator.core.run.gang import unusable
from trainrun_operator.core.run.gang.avoiding import may_be_another
from trainrun_operator.core.run.gang.holding import held_by, must_upload
from trainrun_operator.core.run.gang.unusable import outdated
from trainrun_operator.core.run.incidents import ledger, repeats
from trainrun_operator.core.run.incidents.attribution import (
    attribution_open,
    awaited,
    explains,
    refined,
)
from trainrun_operator.core.run.run_state import Gathering, Suspended
from trainrun_operator.core.run.stages import placement, waiting
from trainrun_operator.core.run.stages.inactive import suspend, suspended
from trainrun_operator.core.run.stages.placement import PLACED, missing
from trainrun_operator.core.run.stages.running import past_deadline
from trainrun_operator.core.run.stages.waiting import store_wait, wait
from trainrun_operator.core.run.steps import carried, newest_known
from trainrun_operator.core.run.storage import (
    AWAY,
    REFUSES,
    has_worked,
    is_due,
    refusal,
    remedy,
    resolution_of,
)
from trainrun_operator.core.run.view import View, and_others, counted, notice_of

CREDENTIALS_GRACE = timedelta(seconds=30)
"""How long a store may refuse credentials that it never accepted: secrets arrive late."""

STORE_GRACE = timedelta(hours=1)
"""How long to wait for a store that is unreachable, or refuses credentials that it accepted before;
nothing is lost meanwhile."""

NOTHING_GOOD_GRACE = timedelta(minutes=1)
"""How long to ask a store without a good checkpoint again: listings may lag."""

INVALID_GRACE = timedelta(seconds=10)
"""How long the API server may reject a template: admission webhooks come and go."""


def decide(view: View, state: Gathering | Suspended) -> Plan:
    """The plan while no attempt runs, suspended or not."""
    status, suspends = view.status, view.config.suspend
    verdict = _judged(view)  # before a suspension, which would charge an incident over its budget
    if verdict is not None:
        return verdict
    if status.incident is not None and refined(view, status.incident) != status.incident:
        return transitions.refine(view, refined(view, status.incident))
    if isinstance(state, Suspended):
        return suspended(view, state.since) if suspends else transitions.resumed(view)
    if must_upload(view):
        return _upload_instead(view)
    if suspends:
        return suspend(view)
    plan = past_deadline(view) or _unlaunchable(view) or _failed_start(view)
    plan = plan or _invalid_template(view) or waiting.remember_node(view)
    return plan or _gather(view)


def _judged(view: View) -> Plan | None:
    """Fail if the incident exceeds its budget; wait while its cause may still change."""
    if view.status.incident is None:
        return None
    incident = refined(view, view.status.incident)
    verdict = ledger.judge(view.status, incident, view.config) or ledger.too_many(view, incident)
    if verdict is None:
        return None
    if still := still_ending(view):
        # Killing them now would destroy what the user's next try could resume from.
        message = f"waiting for {counted(len(still), 'worker')} to end after SIGTERM"
        return wait(view, "Stopping", message, actions=())
    if attribution_open(view, incident):
        why = "this may be a consequence; waiting for the other workers"
        if explains(incident) is Explains.SIGTERM:
            why = "waiting for its pod to end, which shows who sent it"
        elif explains(incident) is Explains.LITTLE:
            why = "its node may explain it; waiting for the state of the node"
        return wait(view, "Attributing", f"{incident.message}: {why}", actions=())
    again = repeats.opened_again(view.status.all_incidents)
    message = verdict.full_message(saved=newest_known(view) is not None)
    message = f"{message}. {again}" if again else message
    return transitions.fail(view, verdict.reason, message)


def _failed_start(view: View) -> Plan | None:
    """Give up the attempt for workers that cannot take part and never did."""
    loss = unusable.failed_start(view)
    if loss is None:
        return None
    return _once_sender_is_known(view, transitions.failed_to_start(view, loss))


def _once_sender_is_known(view: View, plan: Plan) -> Plan:
    """The plan, which gives up the attempt; but first wait for the end of its worker that got
    SIGTERM: afterwards no pass would look who sent it."""
    return waiting.wait_for_sender(view, "Attributing") or plan


def _unlaunchable(view: View) -> Plan | None:
    """Its command cannot be run. A run that has trained waits for a better one and keeps its
    workers."""
    if not view.template_problem:
        return None
    message = f"{TEMPLATE}: {view.template_problem}"
    if not view.status.attempt:
        return transitions.fail(view, "InvalidTemplate", message)
    return wait(view, "InvalidTemplate", message, actions=())


def _invalid_template(view: View) -> Plan | None:
    """No pod can be made from the template. A run that has trained waits for a better one."""
    if view.status.attempt:
        return None
    for refused in view.observation.refused:
        if refused.reason == "Invalid" and refused.since > INVALID_GRACE:
            message = f"the API server refuses pods made from workers.template: {refused.message}"
            return transitions.fail(view, "InvalidTemplate", message)
    return None


def _gather(view: View) -> Plan:
    if view.highest_attempt > view.status.attempt:
        return _once_sender_is_known(view, transitions.skip_to(view, view.highest_attempt))
    if (ending := outlasting(view, grace=STORE_GRACE)) is not None:
        return _flush_longer(view, ending)
    if number := gang.forgotten(view):
        return _once_sender_is_known(view, _forget(view, number))
    chosen = gang.choose(view)
    ready = gang.ready(view, chosen)
    create = gang.creations(view, chosen)
    dismiss = (*gang.dismissals(view, chosen), *gang.surplus(view), *gang.making_room(view))
    if len(ready) < view.config.replicas:
        return _incomplete(view, chosen, ready, actions=(*dismiss, *create))
    return _complete(view, ready, dismiss)


def _forget(view: View, number: int) -> Plan:
    """Delete workers up to this number that ended before they took part: they stay counted."""
    plan = transitions.skip_to(
        view, number, "workers that ended before they took part are deleted to make room"
    )
    status = replace(plan.status, failed_starts=unusable.failed_starts(view))
    return replace(plan, status=status)


def _incomplete(
    view: View,
    chosen: tuple[WorkerFact | None, ...],
    ready: gang.Ready,
    *,
    actions: tuple[Action, ...],
) -> Plan:
    """Some workers are still missing."""
    given_back = placement.decide(view, chosen)
    if given_back is not None:
        return given_back
    refused = [(w, found) for w in chosen if w is not None and (found := refusal(view, w))]
    if refused:
        return _refused(view, refused, actions=actions)
    hung = next((w for w in view.workers if gang.hangs(view, w)), None)
    if hung is not None:
        limit = view.config.start_timeout.total_seconds()
        message = f"worker {hung.name} has had no answer from the store for {limit:.0f} s"
        message = f"{message}; another worker is tried"
        grace = _unavailable_grace(view)
        return store_wait(view, AWAY, message, grace=grace, actions=actions)
    there = {w.slot for w, _ in ready}
    slots = [str(slot) for slot in range(len(chosen)) if slot not in there]
    noun = "worker of slot" if len(slots) == 1 else "workers of slots"
    message = f"waiting for the {noun} {', '.join(slots[:10])}"
    reason, message = missing(view, chosen) or ("Gathering", message)
    mark = condition(view, "WorkersReady", "False", reason, message)
    marks = (mark,) if reason in ("Gathering", PLACED) else (mark, *not_asked(view))
    if away := away_from(view):
        return _store_away(view, f"{message}: {away}", actions=actions, marks=(mark,))
    return wait(view, "Gathering", message, actions=actions, marks=marks)


def _store_away(
    view: View, message: str, *, actions: tuple[Action, ...], marks: tuple[Condition, ...]
) -> Plan:
    """Uploads of the ended attempt cannot reach the store, and try it continuously.

    As long as `outlasting` allows. Then slot 0 asks it: only one node may be unable to reach it.
    """
    return store_wait(view, AWAY, message, grace=None, actions=actions, marks=marks, resolve=False)


def _upload_instead(view: View) -> Plan:
    """A worker cannot go on with what is on its disk: bring it into the store first."""
    ending, message = view.status.ending, "the staged checkpoint is uploaded first"
    assert ending is not None
    until = view.observation.now + view.config.flush_timeout
    ending = replace(ending, in_place=False, flush_until=until)
    return _ending_as(ending, wait(view, "Flushing", message, actions=()))


def _flush_longer(view: View, ending: Ending) -> Plan:
    """Give uploads more time, since the store is unavailable."""
    message = f"waiting for the store: {away_from(view)}"
    return _ending_as(ending, _store_away(view, message, actions=(), marks=()))


def _ending_as(ending: Ending, plan: Plan) -> Plan:
    """The plan, which also writes down how the attempt ends; agents hear of it afterwards."""
    return replace(plan, status=replace(plan.status, ending=ending), transition=True, answers={})


def _refused(
    view: View, refused: list[tuple[WorkerFact, Resolution]], *, actions: tuple[Action, ...]
) -> Plan:
    """The store refuses some workers; credentials that it accepted before may work again."""
    worker, found = refused[0]
    lead = worker.slot == 0
    if not has_worked(view) and gang.claimed(view) is None:
        return store_wait(
            view, REFUSES, found.message, grace=CREDENTIALS_GRACE, actions=actions, resolve=lead
        )
    more = and_others(len(refused))
    message = f"the store refuses worker {worker.name}{more}: {found.message}"
    vain = view.status.store_wait
    if vain is not None and vain.reason == REFUSES and is_due(view, vain):
        return transitions.recreate(view, vain, [w for w, _ in refused], message)
    return store_wait(
        view,
        REFUSES,
        f"{message}. {remedy(view)}",
        hint="; the worker is recreated now and then to try it, and no budget is charged",
        grace=STORE_GRACE,
        actions=actions,
        marks=(condition(view, "WorkersReady", "False", "Gathering", message),),
        resolve=lead,
    )


def _complete(view: View, ready: gang.Ready, dismiss: tuple[Action, ...]) -> Plan:
    """Every worker waits for an order."""
    marks = (whole(view),)
    # Also of leaving workers: resolving now would fence what they saved on their notice.
    if uploading := sorted({worker.slot for worker in still_flushing(view)}):
        noun = "slot" if len(uploading) == 1 else "slots"
        what = "descriptions of staged files" if ends_in_place(view) else "uploads"
        message = f"waiting for the {what} of {noun} {', '.join(map(str, uploading[:10]))}"
        if away := away_from(view):
            return _store_away(view, f"{message}: {away}", actions=dismiss, marks=marks)
        return wait(view, "Flushing", message, actions=dismiss, marks=marks)
    if may_be_another(view):
        message = "which node to avoid is not certain yet; waiting for the state of the node"
        return wait(view, "Attributing", message, actions=dismiss, marks=marks)
    if (slot := _awaited_slot(view)) is not None:
        message = f"what ended the attempt is not certain yet; waiting for slot {slot}"
        return wait(view, "Attributing", message, actions=dismiss, marks=marks)
    until = view.status.ending.not_before if view.status.ending is not None else None
    left = until - view.observation.now if until is not None else timedelta(0)
    # A time further ahead was written by a leader whose clock was ahead of ours.
    if until is not None and timedelta(0) < left <= ledger.longest_backoff(view.config):
        message = f"restarting at {until:%H:%M:%S} UTC (backoff)"
        return wait(view, "BackingOff", message, actions=dismiss, marks=marks, after=left)
    if (point := carried(view)) is not None and point == repeats.to_try(view) and flush_left(view):
        message = f"waiting for the upload of step {point.step}, which attempts died of"
        return wait(view, "Flushing", message, actions=dismiss, marks=marks)
    resolution = _resolution(view, ready)
    if resolution is None:
        message = "asking the store for the newest good checkpoint"
        return wait(view, "Resolving", message, actions=dismiss, marks=marks, resolve=True)
    return _resolved(view, ready, resolution)


def _awaited_slot(view: View) -> int | None:
    """The slot of a worker that an edit or a notice has replaced before it could report what had
    happened to it."""
    old = (w for w in view.roster if w is not None)
    replaced = (w for w in old if outdated(w, view.config) or notice_of(w) is not None)
    return next((worker.slot for worker in replaced if awaited(view, worker)), None)


def _resolution(view: View, ready: gang.Ready) -> Resolution | None:
    (lead, _), *_ = ready
    found = resolution_of(view, lead)
    # "Looked" answers a question from the time when the attempt still ran.
    return found if found is not None and found.outcome != "Looked" else None


def _resolved(view: View, ready: gang.Ready, found: Resolution) -> Plan:
    (lead, _), *_ = ready
    match found.outcome:
        # It is another run's: checkpoints of two generations have the same names.
        case "Resolved" if view.status.storage_generation not in (0, found.generation):
            message = (
                f"worker {lead.name} has read generation {found.generation} of the run's folder, "
                f"but the run is in generation {view.status.storage_generation}; use the same "
                "version of operator and worker image"
            )
            return store_wait(view, "StorageMisconfigured", message, grace=None)
        case "Resolved" if found.staged and not held_by((a for _, a in ready), found.resume):
            why = "a worker that had a part of its resume point is lost"
            plan = transitions.skip_to(view, view.next_attempt, why)
            return _once_sender_is_known(view, plan)
        case "Resolved":
            return _barrier(view, ready, found)
        case "Finished":
            message = found.message or "the store says that this run has succeeded before"
            return transitions.succeed(view, "AlreadyFinished", message)
        case "Suspect":
            return waiting.wait_for_reader(view, found.message)
        case "Behind":
            return _once_sender_is_known(view, transitions.skip_to(view, found.highest_attempt))
        case "NotEmpty":
            return transitions.fail(view, "StorageNotEmpty", found.message)
        case "InUse":
            return store_wait(view, "StorageInUse", found.message, grace=None)
        case "NoGoodCheckpoint":
            return store_wait(view, found.outcome, found.message, grace=NOTHING_GOOD_GRACE)
        # A worker that is refused is not ready; "Looked" never: see `_resolution`.
        case "Unavailable" | "Misconfigured" | "Looked":
            return store_wait(view, AWAY, found.message, grace=_unavailable_grace(view))


def _unavailable_grace(view: View) -> timedelta:
    return view.config.start_timeout if view.status.attempt == 0 else STORE_GRACE


def _barrier(view: View, ready: gang.Ready, found: Resolution) -> Plan:
    """All workers wait and the resume point is claimed: write the start record."""
    (_, lead), *_ = ready
    if lead.offer is None or lead.offer.attempt != view.next_attempt:
        message = "slot 0 is looking for a free master port"
        return wait(view, "Barrier", message, actions=(), marks=(whole(view),), resolve=True)
    if unproven := [worker for worker, _ in ready if gang.is_unproven(view, worker)]:
        return _prove(view, unproven)
    return transitions.start(view, ready, found, lead.offer)


def _prove(view: View, unproven: list[WorkerFact]) -> Plan:
    """Each worker reads the checkpoint that it must resume from before anything starts."""
    for worker in unproven:
        found = resolution_of(view, worker)
        if found is not None and found.outcome == "Unavailable":
            message, grace = f"worker {worker.name}: {found.message}", _unavailable_grace(view)
            return store_wait(view, AWAY, message, grace=grace, marks=(whole(view),))
    message = f"waiting for {counted(len(unproven), 'worker')} to read the checkpoint's manifest"
    return wait(view, "Resolving", message, actions=(), marks=(whole(view),), resolve=True)
