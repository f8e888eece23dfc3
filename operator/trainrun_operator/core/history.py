"""The sentences of a run's history, and those that a status proves to be due.

Layer: core. An event is told after its status was written, so a leader that dies in between has
told nobody: the one that takes over tells the newest ones again, with the times of the status.
Whoever keeps an event by what it says and when keeps each of them once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trainrun_operator.core.plan import Event
from trainrun_operator.core.view import counted

if TYPE_CHECKING:
    from datetime import datetime

    from trainrun_operator.api.status import Incident, StartRecord, TrainRunStatus


class Told(NamedTuple):
    """An event and when it was due."""

    time: datetime
    event: Event


def started(record: StartRecord) -> str:
    """An attempt starts."""
    point = record.resume_point
    begin = (
        "from nothing" if point is None else f"from step {point.step} of attempt {point.attempt}"
    )
    return f"attempt {record.attempt} starts {begin} with {counted(len(record.roster), 'worker')}"


def ended(incident: Incident) -> str:
    """An attempt that was started is given up."""
    return f"attempt {incident.attempt} ended: {incident.cause}: {incident.message}"


def not_started(incident: Incident) -> str:
    """An attempt is given up before it was started."""
    return f"attempt {incident.attempt} could not start: {incident.message}"


def retold(status: TrainRunStatus) -> tuple[Told, ...]:
    """The newest events, oldest first: the start, what ended it, and the verdict."""
    found: list[Told] = []
    record, incident = status.start_record, status.incident
    if record is not None:
        event = Event(type="Normal", reason="Started", message=started(record))
        found.append(Told(record.time, event))
    if incident is not None:
        was_started = record is not None and record.attempt == incident.attempt
        sentence = ended(incident) if was_started else not_started(incident)
        event = Event(type="Warning", reason=incident.cause, message=sentence)
        found.append(Told(incident.time, event))
    for condition in status.conditions:
        if condition.type in ("Complete", "Failed") and condition.status == "True":
            event = Event(
                type="Normal" if condition.type == "Complete" else "Warning",
                reason=condition.reason,
                message=condition.message,
            )
            found.append(Told(status.completion_time or condition.last_transition_time, event))
    return tuple(found)
