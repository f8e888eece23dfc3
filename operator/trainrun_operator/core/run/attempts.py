"""What is recorded and told of an attempt: its start, and its end.

Layer: core; below `transitions`. The record says who trains, from where, and where they meet;
beside it is told whose work the attempt goes on from, and what of the end before is lost.
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
        master_addr=offer.address,
        master_port=offer.port,
        template_hash=view.config.template_hash,
        run_id=environment.valid_run_id(resolution.run_id) or view.status.run_id,
        time=view.observation.now,
    )


def beginnings(view: View, resolution: Resolution) -> tuple[Event, ...]:
    """The events of an attempt that starts from what the store has answered."""
    found = (_beginning(view, resolution), _flush_given_up(view, resolution.resume))
    return tuple(filter(None, found))


def unsaved(*, reports: bool) -> str:
    """What to say of a run without a checkpoint; whether its script `reports` steps."""
    return (
        f"no {'checkpoint was ever committed' if reports else 'step was ever reported'}: a script "
        "that resumes from a folder of its own need not; any other calls trainrun.report(step=..., "
        "checkpoint=...) in the training loop, or a restart begins from nothing"
    )


def _from_scratch(view: View, point: CheckpointId | None) -> Event | None:
    """What was trained before is done again, as far as anybody knows. A script that reports nothing
    may resume by itself, so of such a one it is told once."""
    status, steps = view.status, furthest(view) is not None
    told = status.restarts and not steps
    if point is not None or status.start_record is None or status.runs_tasks or told:
        return None
    return Event(type="Warning", reason="StartsFromScratch", message=unsaved(reports=steps))


def _flush_given_up(view: View, point: CheckpointId | None) -> Event | None:
    """What every rank had staged is not in the store, although it was waited for."""
    steps_lost = given_up(view, point)
    if not steps_lost:
        return None
    listed = ", ".join(map(str, steps_lost[-10:]))
    noun = "step" if len(steps_lost) == 1 else "steps"
    return Event(
        type="Warning",
        reason="FlushGivenUp",
        message=(
            f"{noun} {listed}: staged on all ranks when the last attempt ended, and not stored "
            f"before this one started: {why_given_up(view)}"
        ),
    )


def _beginning(view: View, resolution: Resolution) -> Event | None:
    """What is there is not this TrainRun's own, which has started nothing before: it is resumed, or
    left as it is."""
    status, point, generation = view.status, resolution.resume, resolution.generation
    if status.start_record or status.ending or status.incidents or status.checkpoint:
        return _from_scratch(view, point)
    if status.storage_generation:  # of a run that goes on after it had failed
        return None
    if point is None:
        return _from_nothing(view, generation)
    place = folder(view, generation)
    return Event(
        type="Normal",
        reason="ResumedExisting",
        message=(
            f"resumes what an earlier TrainRun of this name left in {place}: step {point.step} of "
            f"attempt {point.attempt}. To train from nothing use storage.onExisting: StartFresh"
        ),
    )


def _from_nothing(view: View, generation: int) -> Event | None:
    """There are older generations; whoever wanted them resumed has to hear that they are not."""
    if generation == 1:
        return None
    place, before = folder(view, generation), folder(view, generation - 1)
    if view.config.on_existing == "StartFresh":
        message = (
            f"generation {generation} begins from nothing in {place}; what was saved before stays "
            f"in {before}"
        )
        return Event(type="Normal", reason="StartedFresh", message=message)
    return Event(
        type="Warning",
        reason="NothingToResume",
        message=(
            f"generation {generation}, the newest, has no checkpoint in {place}, so the run begins "
            f"from nothing there. What was saved before stays in {before} and is not resumed; "
            "checkpoint.initialFrom takes weights from there"
        ),
    )


def started(view: View, record: StartRecord) -> str:
    """An attempt starts; where a script that has reported nothing goes on is its own."""
    point, silent = record.resume_point, view.record is not None and not reports(view)
    begin = "without a checkpoint, since none was reported," if silent else "from nothing"
    begin = "after the tasks that are done" if view.status.runs_tasks else begin
    if point is not None:
        begin = f"from step {point.step} of attempt {point.attempt}"
    return f"attempt {record.attempt} starts {begin} with {counted(len(record.roster), 'worker')}"


def ended(incident: Incident, wait: timedelta) -> str:
    """An attempt that was started is given up; the next one is to wait so long."""
    said = f"attempt {incident.attempt} ended: {incident.cause}: {incident.message}"
    return f"{said}{_follows(incident, wait)}"


def explained(incident: Incident) -> str:
    """An attempt that was given up has ended for another reason than was told."""
    return (
        f"what ended attempt {incident.attempt} is known now: {incident.cause}: {incident.message}"
        f"{_follows(incident)}"
    )


def not_started(incident: Incident, wait: timedelta) -> str:
    """An attempt is given up before it was started; the next one is to wait so long."""
    said = f"attempt {incident.attempt} could not start: {incident.message}"
    return f"{said}{_follows(incident, wait)}"


def _follows(incident: Incident, wait: timedelta = timedelta(0)) -> str:
    """Which rule has decided about it, and what, if one has; and how long the next one is to wait.

    An event is of one moment: there the seconds until then stay true.
    """
    rule = f"; spec.failurePolicy.{incident.rule} says {incident.action}" if incident.rule else ""
    return f"{rule}; restarting in {wait.total_seconds():.0f} s" if wait else rule
