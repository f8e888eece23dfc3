"""Plans that only change the status: each is one guarded write with its event.

Layer: core. One of these functions makes every durable decision of the planner. They change the
status with `dataclasses.replace`, whose arguments mypy checks.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from trainrun.contract.agent_state import Offer, Resolution
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import (
    MAX_DISTRUSTED,
    Condition,
    Distrusted,
    PhaseName,
    Placement,
    StartRecord,
    TrainRunStatus,
)
from trainrun_operator.api.run.status_parts import (
    MAX_LEAVING,
    Cause,
    Ending,
    EndingKind,
    Incident,
    Progress,
    SaveAsked,
    StoreWait,
)
from trainrun_operator.core.run import attempts, drain
from trainrun_operator.core.run.boundary import Event, Plan, WorkerFact
from trainrun_operator.core.run.causes import Explains, row_of
from trainrun_operator.core.run.display import (
    CONTESTED,
    condition,
    gathering_phase,
    leaving,
    not_asked,
    refreshed,
    running_phase,
    whole,
    with_marks,
)
from trainrun_operator.core.run.drain import flush_until, new_ending, to_flush
from trainrun_operator.core.run.gang.roster import Ready
from trainrun_operator.core.run.incidents import (
    attempt_progress,
    attribution,
    evidence,
    ledger,
    repeats,
)
from trainrun_operator.core.run.incidents.attribution import incident_of
from trainrun_operator.core.run.incidents.hangs import with_learned
from trainrun_operator.core.run.incidents.losses import Loss
from trainrun_operator.core.run.incidents.output import from_then_on
from trainrun_operator.core.run.storage import paused
from trainrun_operator.core.run.view import View, counted

EventType = Literal["Normal", "Warning"]


def transition(
    view: View,
    reason: str,
    message: str,
    *,
    phase: PhaseName,
    type_: EventType = "Normal",
) -> Plan:
    """Write the refreshed status, with an event; callers add their changes to it."""
    shown = "" if phase in ("Starting", "Running") else reason
    return Plan(
        reason=reason,
        message=message,
        status=refreshed(view, view.status, phase=phase, reason=shown),
        transition=True,
        events=(Event(type=type_, reason=reason, message=message),),
    )


def accept(view: View) -> Plan:
    """The first pass over a run: its clock starts."""
    message = f"gathering {counted(view.config.replicas, 'worker')}"
    plan = transition(view, "Accepted", message, phase="Pending")
    return replace(plan, status=replace(plan.status, start_time=view.observation.now))


def open_incident(
    view: View,
    record: StartRecord,
    loss: Loss,
    *,
    lost: frozenset[int] = frozenset(),
    grace: timedelta = timedelta(0),
    distrust: str = "",
) -> Plan:
    """Give up the attempt because of a loss; the cause stays provisional until it is settled.

    `lost`: slots whose workers can store nothing more. `grace`: how long its processes may take to
    end after SIGTERM. `distrust`: a node that is no longer believed alone about checkpoints.
    """
    if row_of(loss.cause).explains in (Explains.NOTICE, Explains.SIGTERM):
        loss = replace(loss, message=f"{loss.message}{drain.not_asked_since(view)}")
    incident = incident_of(loss, attempt=view.status.attempt, now=view.observation.now)
    incident = replace(
        incident, step=attempt_progress.highest_step(view), template=record.template_hash
    )
    incident = repeats.marked(view, record, incident)
    fruitless = attribution.fruitless_after(view, incident)
    incident = ledger.charged(view.status, incident, view.config)
    wait = timedelta(0)
    if row_of(incident.cause).slows_down:
        wait = ledger.backoff(view.config, fruitless=fruitless, attempt=incident.attempt)
    ending = new_ending(view, "Incident", lost=lost, wait=wait, grace=grace)
    message = attempts.ended(incident, wait)
    plan = transition(view, incident.cause, message, phase="Restarting", type_="Warning")
    ending = replace(ending, dismissed=ending.dismissing(_unreachable(view)))
    free_ends = {} if attribution.made_progress(view) else view.status.free_ends
    status = replace(
        plan.status,
        ending=ending,
        save_asked=None,
        evidence_asked=None,
        fruitless=fruitless,
        free_ends=free_ends,
    )
    if distrust:
        status = replace(status, distrusted=_distrusting(view, Distrusted(node=distrust)))
    noted = attempt_progress.noted(view, status, hung=incident.cause == Cause.HUNG)
    return replace(plan, status=attribution.opened(view, with_learned(view, noted), incident))


def _unreachable(view: View) -> tuple[int, ...]:
    """Slots whose workers are deleted as soon as the attempt has ended (see `planner`)."""
    return tuple(
        slot
        for slot, worker in enumerate(view.roster)
        if worker is not None and worker.phase != "Ended" and view.is_unreachable(worker)
    )


def distrust(view: View, node: Distrusted, message: str) -> Plan:
    """A node is no longer believed alone about checkpoints."""
    phase = gathering_phase(view) if view.running is None else running_phase(view)
    plan = transition(view, "NodeDistrusted", message, phase=phase, type_="Warning")
    return replace(plan, status=replace(plan.status, distrusted=_distrusting(view, node)))


def _distrusting(view: View, node: Distrusted) -> tuple[Distrusted, ...]:
    known = view.status.distrusted
    if node.node in {entry.node for entry in known}:
        return known
    return (*known, node)[-MAX_DISTRUSTED:]


def refine(view: View, incident: Incident) -> Plan:
    """The open incident has a better explanation.

    Written before anything follows from it: the worker that reported it may be gone in the next
    pass.
    """
    message = attempts.explained(ledger.charged(view.status, incident, view.config))
    plan = transition(view, incident.cause, message, phase="Restarting", type_="Warning")
    fruitless = attribution.fruitless_refined(view, incident)
    return replace(plan, status=replace(plan.status, fruitless=fruitless))


def ask_for_evidence(view: View, hang: Loss) -> Plan:
    """The gang stands still: ask the agents where, before any action or report."""
    message = f"{hang.message}; asking the agents where their ranks are"
    plan = transition(view, "StandsStill", message, phase="Running")
    status = replace(plan.status, evidence_asked=evidence.next_request(view))
    return replace(plan, status=status, events=())


def end_uncounted(
    view: View, kind: EndingKind, reason: str, message: str, *, grace: timedelta = timedelta(0)
) -> Plan:
    """Give up the attempt for a reason that is not a failure; `grace`: see `open_incident`."""
    ending = new_ending(view, kind, lost=frozenset(), wait=timedelta(0), grace=grace)
    plan = transition(view, reason, message, phase="Restarting")
    status = replace(
        plan.status, ending=ending, save_asked=None, evidence_asked=None, fruitless=0, free_ends={}
    )
    return replace(plan, status=with_learned(view, attempt_progress.noted(view, status)))


def take_over(view: View, before: str) -> Plan:
    """Another installation has led the run: its workers are not ours and explain nothing."""
    message = f"taken over from the operator in namespace {before}"
    if view.running is not None:
        plan = end_uncounted(view, "TakenOver", "TakenOver", f"{message}: the gang is recreated")
    else:
        plan = transition(view, "TakenOver", message, phase=gathering_phase(view))
    ending = plan.status.ending
    if ending is not None:
        ending = replace(ending, dismissed=ending.dismissing(range(len(view.roster))))
    conditions = tuple(c for c in plan.status.conditions if c.type != CONTESTED)
    now = view.observation.now
    status = replace(plan.status, ending=ending, conditions=conditions, taken_over=now)
    return replace(plan, status=status)


def ask_to_save(view: View, reason: str, *, writer_rank: int, leaving: tuple[int, ...]) -> Plan:
    """Ask the training to save a checkpoint now."""
    asked = SaveAsked(
        attempt=view.status.attempt,
        reason=reason[:128],
        time=view.observation.now,
        writer_rank=writer_rank,
        leaving=leaving[:MAX_LEAVING],
    )
    return _asked(view, asked, f"asking the training for a checkpoint: {reason}")


def more_leave(view: View, asked: SaveAsked, slots: tuple[int, ...]) -> Plan:
    """More workers are under notice while the training is asked to save."""
    message = f"the workers of slots {', '.join(map(str, slots[:10]))} will be taken away as well"
    if len(slots) == 1:
        message = f"the worker of slot {slots[0]} will be taken away as well"
    leaving = tuple(sorted({*asked.leaving, *slots}))[:MAX_LEAVING]
    return _asked(view, replace(asked, leaving=leaving), message)


def _asked(view: View, asked: SaveAsked, message: str) -> Plan:
    plan = transition(view, "SaveAsked", message, phase="Preempting")
    return replace(plan, status=replace(plan.status, save_asked=asked))


def withdraw_save(view: View) -> Plan:
    """The reason for the requested checkpoint is gone."""
    message = "the requested checkpoint is no longer needed"
    plan = transition(view, "SaveWithdrawn", message, phase="Running")
    return replace(plan, status=replace(plan.status, save_asked=None))


def failed_to_start(view: View, loss: Loss) -> Plan:
    """An attempt failed before it had a start record: an incident of that attempt."""
    attempt = view.next_attempt
    incident = incident_of(loss, attempt=attempt, now=view.observation.now)
    fruitless = view.status.fruitless + 1
    wait = ledger.backoff(view.config, fruitless=fruitless, attempt=attempt)
    now, before = view.observation.now, view.status.ending
    ending = Ending(
        attempt=attempt,
        kind="Incident",
        time=now,
        grace_until=before.grace_until if before is not None else None,
        flush=to_flush(view),  # its workers may still store what the previous attempt has left
        flush_until=flush_until(view),
        not_before=now + wait if wait else None,
    )
    message = attempts.not_started(ledger.charged(view.status, incident, view.config), wait)
    plan = transition(view, incident.cause, message, phase="Restarting", type_="Warning")
    status = replace(
        attribution.settled(view, plan.status),
        attempt=attempt,
        failed_starts={},
        start_record=None,
        ending=ending,
        fruitless=fruitless,
    )
    return replace(plan, status=attribution.opened(view, status, incident))


def start(view: View, ready: Ready, resolution: Resolution, offer: Offer) -> Plan:
    """The start record of the next attempt; settles the incident that ended the one before."""
    point, record = resolution.resume, attempts.record_of(view, ready, resolution, offer)
    marks = (condition(view, "StorageReady", "True", "Resolved", "the store answers"), whole(view))
    progress, tasks = view.status.progress, view.status.runs_tasks
    plan = transition(view, "Started", attempts.started(view, record), phase="Starting")
    if not tasks:  # the previous attempt may have reached a step far beyond
        # A save in the script's own folder is no reported step.
        step = point.step if point is not None and view.config.folder is None else None
        progress = Progress(step=step, time=progress.time)
    status = attribution.measured(view, plan.status, point)
    if attempt_progress.advanced(view, point):  # its commit came late, or no agent reported it
        status = replace(status, fruitless=0, free_ends={}, without_progress=0)
    status = replace(
        status,
        attempt=record.attempt,
        run_id=record.run_id,
        storage_generation=resolution.generation,
        restart=view.config.restart or view.status.restart,
        start_record=record,
        ending=None,
        save_asked=None,
        evidence_asked=None,
        placement=None,
        store_wait=None,
        failed_starts={},
        progress=progress,
        posted=None,
        output=from_then_on(view.status.output),
        restarts=view.status.restarts + (view.status.ending is not None),
    )
    plan = replace(plan, status=with_marks(status, *marks))
    return replace(plan, events=(*plan.events, *attempts.beginnings(view, resolution)))


def recreate(view: View, wait: StoreWait, refused: list[WorkerFact], message: str) -> Plan:
    """Recreate the workers that the store refuses: only new ones see a changed Secret."""
    text = f"{message}. Recreating the refused workers: only new ones see the current Secret"
    plan = transition(view, "RefusedRecreated", text, phase=gathering_phase(view), type_="Warning")
    wait = replace(
        wait,
        renewals=wait.renewals + 1,
        renewed=view.observation.now,
        renewed_to=max(worker.created_for for worker in refused),
    )
    return replace(plan, status=replace(plan.status, store_wait=paused(view, wait)))


def give_back(view: View, *, tries: int, until: datetime, message: str) -> Plan:
    """Delete all pods: there is room for only a part of the gang."""
    phase = gathering_phase(view)
    plan = transition(view, "GangNotPlaced", message, phase=phase, type_="Warning")
    status = replace(plan.status, placement=Placement(tries=tries, not_before=until))
    mark = condition(view, "WorkersReady", "False", "GangNotPlaced", message)
    return replace(plan, status=with_marks(status, mark))


def skip_to(view: View, highest: int, why: str = "") -> Plan:
    """Continue the numbering after `highest`: attempts up to it exist elsewhere (store, agents), or
    workers up to this number are about to be forgotten."""
    ending = view.status.ending
    message = f"{why or f'attempt {highest} exists already'}; numbering continues from there"
    plan = transition(view, "AttemptSkipped", message, phase=gathering_phase(view))
    status = replace(
        plan.status,
        attempt=max(highest, view.next_attempt),  # the number always grows
        start_record=None,
        ending=ending if ending is None else replace(ending, flush=to_flush(view)),
        save_asked=None,
        evidence_asked=None,
    )
    return replace(plan, status=status)


def suspended(view: View) -> Plan:
    """Everything is stopped and saved."""
    why = "spec.suspend is true"
    marks = (
        condition(view, "Suspended", "True", "Suspended", why),
        condition(view, "WorkersReady", "False", "Suspended", why),
        *not_asked(view),
    )
    plan = transition(view, "Suspended", "the run is suspended", phase="Suspended")
    status = replace(attribution.settled(view, plan.status), placement=None)
    return replace(plan, status=with_marks(status, *marks))


def resumed(view: View) -> Plan:
    """spec.suspend is false again."""
    mark = condition(view, "Suspended", "False", "Resumed", "spec.suspend is false")
    plan = transition(view, "Resumed", "the run continues", phase=gathering_phase(view))
    status = replace(
        plan.status,
        start_time=view.observation.now,
        resumptions=view.status.resumptions + 1,
    )
    return replace(plan, status=with_marks(status, mark))


def succeed(view: View, reason: str, message: str, *, type_: EventType = "Normal") -> Plan:
    """The verdict that the run is done."""
    plan = transition(view, reason, message, phase="Succeeded", type_=type_)
    return _over(view, plan, condition(view, "Complete", "True", reason, message))


def fail(view: View, reason: str, message: str) -> Plan:
    """The verdict that the run has failed."""
    plan = transition(view, reason, message, phase="Failed", type_="Warning")
    return _over(view, plan, condition(view, "Failed", "True", reason, message))


def _over(view: View, plan: Plan, verdict: Condition) -> Plan:
    known = plan.status if view.running is None else _learned(view, plan.status)
    status = replace(
        attribution.settled(view, known),
        completion_time=view.observation.now,
        restart=view.config.restart or known.restart,  # only a later value asks for a restart
        save_asked=None,
        evidence_asked=None,
        workers=replace(plan.status.workers, leaving=leaving(view)),
    )
    return replace(plan, status=with_marks(status, verdict))


def _learned(view: View, status: TrainRunStatus) -> TrainRunStatus:
    """With the progress of the attempt that the verdict ends: an edit may continue the run."""
    noted = attempt_progress.noted(view, with_learned(view, status))
    return replace(noted, fruitless=0, free_ends={}) if attribution.made_progress(view) else noted
