"""Plans that change the status first: each is one guarded write with its event, and nothing else.

Layer: core. Every durable decision of the planner is made by one of these functions.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from trainrun_operator.api.status import (
    IDENTITY_LENGTH,
    MAX_LEAVING,
    Ending,
    EndingKind,
    Incident,
    PhaseName,
    Placement,
    ResumePoint,
    SaveAsked,
    StartRecord,
)
from trainrun_operator.core import history, ledger, settling, steps
from trainrun_operator.core.attribution import incident_of
from trainrun_operator.core.causes import Cause
from trainrun_operator.core.display import (
    condition,
    gathering_phase,
    refreshed,
    whole,
    with_condition,
)
from trainrun_operator.core.plan import Event, Plan
from trainrun_operator.core.view import View, counted

if TYPE_CHECKING:
    from datetime import datetime

    from trainrun.protocol import Resolution
    from trainrun_operator.api.status import Condition
    from trainrun_operator.core.losses import Loss
    from trainrun_operator.core.observation import WorkerFact

EventType = Literal["Normal", "Warning"]

MAX_FLUSH = 64
"""Newest staged steps that an ending names: its list is bounded."""


def transition(
    view: View,
    reason: str,
    message: str,
    *,
    phase: PhaseName,
    type_: EventType = "Normal",
    **changes: Any,
) -> Plan:
    """Write the status with these fields changed, then tell it as an event."""
    shown = "" if phase in ("Starting", "Running") else reason
    status = refreshed(view, view.status, phase=phase, reason=shown).model_copy(update=changes)
    return Plan(
        reason=reason,
        message=message,
        status=status,
        transition=True,
        events=(Event(type=type_, reason=reason, message=message),),
    )


def accept(view: View) -> Plan:
    """The first pass over a run: its clock starts."""
    message = f"gathering {counted(view.config.replicas, 'worker')}"
    return transition(view, "Accepted", message, phase="Pending", start_time=view.observation.now)


def open_incident(view: View, loss: Loss, lost: frozenset[int]) -> Plan:
    """Give the attempt up because of a loss; the cause stays provisional until it is settled."""
    incident = incident_of(
        loss, attempt=view.status.attempt, now=view.observation.now, config=view.config
    )
    fruitless = settling.fruitless_after(view, incident)
    wait = timedelta(0)
    if incident.cause != Cause.INTERRUPTED:  # not the run's fault: nothing to go slow for
        wait = ledger.backoff(view.config, fruitless=fruitless, attempt=incident.attempt)
    ending = _ending(view, "Incident", flush=steps.flushable(view, lost), wait=wait)
    return transition(
        view,
        incident.cause,
        history.ended(incident),
        phase="Restarting",
        type_="Warning",
        ending=ending,
        save_asked=None,
        fruitless=fruitless,
        **settling.opened(view, incident, view.status, fruitless),
    )


def refine(view: View, incident: Incident) -> Plan:
    """The open incident has a better explanation.

    Written before anything follows from it: the worker that told it may be gone in the next pass.
    """
    message = history.ended(incident)
    return transition(view, incident.cause, message, phase="Restarting", type_="Warning")


def end_uncounted(view: View, kind: EndingKind, reason: str, message: str) -> Plan:
    """Give the attempt up for a reason that is nobody's failure."""
    lost: frozenset[int] = frozenset()
    ending = _ending(view, kind, flush=steps.flushable(view, lost), wait=timedelta(0))
    return transition(
        view, reason, message, phase="Restarting", ending=ending, save_asked=None, fruitless=0
    )


def _ending(view: View, kind: EndingKind, *, flush: tuple[int, ...], wait: timedelta) -> Ending:
    now = view.observation.now
    return Ending(
        attempt=view.status.attempt,
        kind=kind,
        time=now,
        flush=flush[-MAX_FLUSH:],
        not_before=now + wait if wait else None,
    )


def ask_to_save(view: View, reason: str, *, writer_rank: int, leaving: tuple[int, ...]) -> Plan:
    """Ask the training to save a checkpoint now."""
    asked = SaveAsked(
        attempt=view.status.attempt,
        reason=reason[:128],
        time=view.observation.now,
        writer_rank=writer_rank,
        leaving=leaving[:MAX_LEAVING],
    )
    message = f"asking the training for a checkpoint: {reason}"
    return transition(view, "SaveAsked", message, phase="Preempting", save_asked=asked)


def more_leave(view: View, asked: SaveAsked, slots: tuple[int, ...]) -> Plan:
    """More workers are under notice while the training is asked to save."""
    message = f"the workers of slots {', '.join(map(str, slots[:10]))} will be taken away as well"
    if len(slots) == 1:
        message = f"the worker of slot {slots[0]} will be taken away as well"
    leaving = tuple(sorted({*asked.leaving, *slots}))[:MAX_LEAVING]
    more = asked.model_copy(update={"leaving": leaving})
    return transition(view, "SaveAsked", message, phase="Preempting", save_asked=more)


def withdraw_save(view: View) -> Plan:
    """What the checkpoint was asked for is over."""
    message = "the checkpoint asked for is no longer needed"
    return transition(view, "SaveWithdrawn", message, phase="Running", save_asked=None)


def failed_to_start(view: View, loss: Loss) -> Plan:
    """The gathering of an attempt failed before it had a start record: it is an incident of it."""
    attempt = view.next_attempt
    incident = incident_of(loss, attempt=attempt, now=view.observation.now, config=view.config)
    fruitless = view.status.fruitless + 1
    wait = ledger.backoff(view.config, fruitless=fruitless, attempt=attempt)
    now = view.observation.now
    ending = Ending(
        attempt=attempt, kind="Incident", time=now, not_before=now + wait if wait else None
    )
    before_it = settling.settled(view)
    before = view.status.model_copy(update=before_it)
    return transition(
        view,
        incident.cause,
        history.not_started(incident),
        phase="Restarting",
        type_="Warning",
        attempt=attempt,
        start_record=None,
        ending=ending,
        fruitless=fruitless,
        **(before_it | settling.opened(view, incident, before, fruitless)),
    )


def start(view: View, chosen: tuple[WorkerFact, ...], resolution: Resolution) -> Plan:
    """The start record of the next attempt; settles the incident that ended the one before."""
    lead = chosen[0].agent
    assert lead is not None, "checked by the barrier"
    assert lead.offer is not None, "checked by the barrier"
    resume = resolution.resume
    point = ResumePoint(step=resume.step, attempt=resume.attempt) if resume else None
    record = StartRecord(
        attempt=view.next_attempt,
        roster=tuple(worker.created_for for worker in chosen),
        agents="".join(_identity(worker) for worker in chosen),
        world_size=view.config.world_size,
        resume_point=point,
        master_addr=lead.offer.address,
        master_port=lead.offer.port,
        template_hash=view.config.template_hash,
        time=view.observation.now,
    )
    marks = (condition(view, "StorageReady", "True", "Resolved", "the store answers"), whole(view))
    plan = transition(
        view,
        "Started",
        history.started(record),
        phase="Starting",
        attempt=record.attempt,
        start_record=record,
        ending=None,
        save_asked=None,
        placement=None,
        restarts=view.status.restarts + (view.status.ending is not None),
        **(settling.settled(view) | settling.measured(view, point)),
    )
    plan = _with_marks(plan, *marks)
    found = _resumed_existing(view, point)
    return plan if found is None else replace(plan, events=(*plan.events, found))


def _resumed_existing(view: View, point: ResumePoint | None) -> Event | None:
    """What is resumed is not this TrainRun's own: it has started nothing before."""
    status = view.status
    own = status.start_record or status.ending or status.incidents or status.checkpoint
    if point is None or own:
        return None
    place = view.config.checkpoints_uri.removesuffix("/checkpoints")
    return Event(
        type="Normal",
        reason="ResumedExisting",
        message=(
            f"resumes what an earlier TrainRun of this name left in {place}: step {point.step} of "
            f"attempt {point.attempt}. To train from nothing use another storage.runName"
        ),
    )


def give_back(view: View, *, tries: int, until: datetime, message: str) -> Plan:
    """Give all pods back: there is room for a part of the gang only."""
    plan = transition(
        view,
        "GangNotPlaced",
        message,
        phase=gathering_phase(view),
        type_="Warning",
        placement=Placement(tries=tries, not_before=until),
    )
    mark = condition(view, "WorkersReady", "False", "GangNotPlaced", message)
    return _with_marks(plan, mark)


def _identity(worker: WorkerFact) -> str:
    assert worker.agent is not None, "checked by the barrier"
    return worker.agent.agent[:IDENTITY_LENGTH].ljust(IDENTITY_LENGTH)


def skip_to(view: View, highest: int) -> Plan:
    """Attempts up to `highest` exist elsewhere (store, agents): number on from there."""
    message = f"attempt {highest} exists already; numbering goes on from there"
    return transition(
        view,
        "AttemptSkipped",
        message,
        phase=gathering_phase(view),
        attempt=max(highest, view.next_attempt),  # the number never goes down, nor stands still
        start_record=None,
        save_asked=None,
    )


def suspended(view: View) -> Plan:
    """Everything is stopped and saved."""
    why = "spec.suspend is true"
    plan = transition(
        view,
        "Suspended",
        "the run is suspended",
        phase="Suspended",
        placement=None,
        **settling.settled(view),
    )
    return _with_marks(
        plan,
        condition(view, "Suspended", "True", "Suspended", why),
        condition(view, "WorkersReady", "False", "Suspended", why),
    )


def resumed(view: View) -> Plan:
    """spec.suspend was taken back."""
    mark = condition(view, "Suspended", "False", "Resumed", "spec.suspend is false")
    plan = transition(
        view,
        "Resumed",
        "the run goes on",
        phase=gathering_phase(view),
        start_time=view.observation.now,
    )
    return _with_marks(plan, mark)


def succeed(view: View, reason: str, message: str) -> Plan:
    """The verdict that the run is done."""
    mark = condition(view, "Complete", "True", reason, message)
    plan = transition(
        view,
        reason,
        message,
        phase="Succeeded",
        completion_time=view.observation.now,
        save_asked=None,
        **settling.settled(view),
    )
    return _with_marks(plan, mark)


def fail(view: View, reason: str, message: str) -> Plan:
    """The verdict that the run has failed."""
    mark = condition(view, "Failed", "True", reason, message)
    plan = transition(
        view,
        reason,
        message,
        phase="Failed",
        type_="Warning",
        completion_time=view.observation.now,
        save_asked=None,
        **settling.settled(view),
    )
    return _with_marks(plan, mark)


def _with_marks(plan: Plan, *marks: Condition) -> Plan:
    conditions = plan.status.conditions
    for mark in marks:
        conditions = with_condition(conditions, mark)
    return replace(plan, status=plan.status.model_copy(update={"conditions": conditions}))
