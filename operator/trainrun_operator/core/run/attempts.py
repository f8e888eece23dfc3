"""The start record of an attempt, and the messages about its start and its end.

Layer: core; below `transitions`. The record says who trains, from which checkpoint, and where they
meet. The messages say whose work the attempt continues, and what the previous end has lost.
"""

from __future__ import annotations

from datetime import timedelta

from trainrun.contract import environment
from trainrun.contract.agent_state import Offer, Resolution
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status import IDENTITY_LENGTH, StartRecord
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.boundary import Event
from trainrun_operator.core.run.display import folder
from trainrun_operator.core.run.drain import given_up, why_given_up
from trainrun_operator.core.run.gang.roster import Ready
from trainrun_operator.core.run.incidents.attempt_progress import furthest, reports
from trainrun_operator.core.run.steps import on_disks
from trainrun_operator.core.run.view import View, counted


def record_of(view: View, ready: Ready, resolution: Resolution, offer: Offer) -> StartRecord:
    """The start record of the next attempt; `ready` has a worker for each slot, `offer` is that of
    slot 0's agent."""
    identities = (agent.agent[:IDENTITY_LENGTH] for _, agent in ready)
    return StartRecord(
        attempt=view.next_attempt,
        roster=tuple(worker.created_for for worker, _ in ready),
        agents="".join(identity.ljust(IDENTITY_LENGTH) for identity in identities),
        world_size=view.config.world_size,
        resume_point=resolution.resume,
        trial_of=resolution.trial_of,
        staged=resolution.staged,
        master_addr=offer.address,
        master_port=offer.port,
        template_hash=view.config.template_hash,
        run_id=environment.valid_run_id(resolution.run_id) or view.status.run_id,
        time=view.observation.now,
    )


def beginnings(view: View, resolution: Resolution) -> tuple[Event, ...]:
    """The events of an attempt that starts from this answer of the store."""
    point = resolution.resume
    found = (_beginning(view, resolution), _flush_given_up(view, point), _part_lost(view, point))
    return tuple(filter(None, found))


def unsaved(*, reports: bool) -> str:
    """The message about a run without a checkpoint; `reports`: whether its script reports steps."""
    return (
        f"no {'checkpoint was ever committed' if reports else 'step was ever reported'}: unless "
        "the script resumes from its own folder, a restart begins from scratch. Call "
        "trainrun.report(step=..., checkpoint=...) in the training loop, or let TrainRun store "
        "that folder (checkpoint.folder)"
    )


def _unsaved_folder(path: str) -> str:
    """The message about a run that stores its script's folder, and has stored nothing yet."""
    return (
        f"no save in {path} has been stored yet: unless a complete one is left there, the script "
        "begins from scratch. If it did save, check checkpoint.folder, and FolderNotTaken in "
        "status.conditions"
    )


def _from_scratch(view: View, point: CheckpointId | None) -> Event | None:
    """The steps trained so far are repeated, as far as is known. A script that reports nothing may
    resume by itself, so the event comes only once for it."""
    status, steps = view.status, furthest(view) is not None
    warned = status.restarts and not steps
    rule = view.config.folder
    stays = rule is not None and not rule.carry
    if point is not None or status.start_record is None or status.runs_tasks or warned or stays:
        return None
    message = _unsaved_folder(rule.path) if rule is not None else unsaved(reports=steps)
    return Event(type="Warning", reason="StartsFromScratch", message=message)


def _flush_given_up(view: View, point: CheckpointId | None) -> Event | None:
    """Steps that every rank had staged did not reach the store, although the run waited."""
    steps_lost = given_up(view, point)
    if not steps_lost:
        return None
    listed = ", ".join(map(str, steps_lost[-10:]))
    what = f"step {listed} was" if len(steps_lost) == 1 else f"steps {listed} were"
    return Event(
        type="Warning",
        reason="FlushGivenUp",
        message=(
            f"{what} staged on all ranks when the last attempt ended, but not stored before this "
            f"one started: {why_given_up(view)}"
        ),
    )


def _part_lost(view: View, point: CheckpointId | None) -> Event | None:
    """The last attempt started from the workers' disks, and a part was lost before its upload."""
    lost = on_disks(view)
    if lost is None or (point is not None and point >= lost):
        return None
    return Event(
        type="Warning",
        reason="FlushGivenUp",
        message=(
            f"step {lost.step} of attempt {lost.attempt} was only on the workers' disks, from "
            f"which the last attempt started, and is lost: {why_given_up(view)}"
        ),
    )


def _beginning(view: View, resolution: Resolution) -> Event | None:
    """Before its first attempt: whether the TrainRun resumes what an earlier one has left in the
    folder."""
    status, point, generation = view.status, resolution.resume, resolution.generation
    if status.start_record or status.ending or status.incidents or status.checkpoint:
        return _from_scratch(view, point)
    if status.storage_generation:  # a failed run continues
        return None
    if point is None:
        return _from_nothing(view, generation)
    place = folder(view, generation)
    return Event(
        type="Normal",
        reason="ResumedExisting",
        message=(
            f"resumes from step {point.step} of attempt {point.attempt}, which an earlier TrainRun "
            f"of this name left in {place}. To train from scratch, set storage.onExisting: "
            "StartFresh"
        ),
    )


def _from_nothing(view: View, generation: int) -> Event | None:
    """Older generations exist; a user who wanted to resume one must learn that none is."""
    if generation == 1:
        return None
    place, before = folder(view, generation), folder(view, generation - 1)
    if view.config.on_existing == "StartFresh":
        message = (
            f"generation {generation} begins from scratch in {place}; what was saved before stays "
            f"in {before}"
        )
        return Event(type="Normal", reason="StartedFresh", message=message)
    return Event(
        type="Warning",
        reason="NothingToResume",
        message=(
            f"generation {generation}, the newest, has no checkpoint in {place}, so the run begins "
            f"from scratch there. What was saved before stays in {before} and is not resumed; "
            "checkpoint.initialFrom takes weights from there"
        ),
    )


def started(view: View, record: StartRecord) -> str:
    """An attempt starts; a script that has reported nothing chooses itself where it continues."""
    point, silent = record.resume_point, view.record is not None and not reports(view)
    begin = "without a checkpoint, since none was reported," if silent else "from scratch"
    begin = "after the tasks that are done" if view.status.runs_tasks else begin
    if point is not None:
        begin = f"from step {point.step} of attempt {point.attempt}"
        begin += ", on the workers' disks," if record.staged else ""
    return f"attempt {record.attempt} starts {begin} with {counted(len(record.roster), 'worker')}"


def ended(incident: Incident, wait: timedelta) -> str:
    """A started attempt is given up; the next one starts after `wait`."""
    text = f"attempt {incident.attempt} ended: {incident.cause}: {incident.message}"
    return f"{text}{_follows(incident, wait)}"


def explained(incident: Incident) -> str:
    """An attempt that was given up has ended for another reason than reported."""
    return (
        f"attempt {incident.attempt} ended for another reason: {incident.cause}: "
        f"{incident.message}{_follows(incident)}"
    )


def not_started(incident: Incident, wait: timedelta) -> str:
    """An attempt is given up before its start; the next one starts after `wait`."""
    text = f"attempt {incident.attempt} could not start: {incident.message}"
    return f"{text}{_follows(incident, wait)}"


def _follows(incident: Incident, wait: timedelta = timedelta(0)) -> str:
    """The rule that has decided about it, if any, and how long the next attempt waits.

    An event describes one moment, so the seconds in it stay true.
    """
    rule = f"; spec.failurePolicy.{incident.rule} says {incident.action}" if incident.rule else ""
    return f"{rule}; restarting in {wait.total_seconds():.0f} s" if wait else rule
