"""The history of a run: its sentences, and the newest events, which stand in the status.

Layer: core. An event is written in the status with what it tells, and told by whoever reads it
there: so it is told when the answer to the write got lost, and when the leader that wrote it has
died. Two who tell the same entry tell the same event, of the same time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun._common.text import cut
from trainrun_operator.api.run.status import HistoryEntry
from trainrun_operator.core.run.status_size import HISTORY_LIMIT, history_size
from trainrun_operator.core.run.view import counted

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from trainrun_operator.api.run.incident import Incident
    from trainrun_operator.api.run.status import StartRecord
    from trainrun_operator.core.run.plan import Plan

KEPT = 4
"""Events that the status holds at least, if they fit: who takes over tells them again."""


def started(record: StartRecord, *, tasks: bool = False) -> str:
    """An attempt starts; `tasks`: of a program that keeps what is done."""
    point = record.resume_point
    begin = "after the tasks that are done" if tasks else "from nothing"
    if point is not None:
        begin = f"from step {point.step} of attempt {point.attempt}"
    return f"attempt {record.attempt} starts {begin} with {counted(len(record.roster), 'worker')}"


def ended(incident: Incident, wait: timedelta) -> str:
    """An attempt that was started is given up; the next one is to wait so long."""
    said = f"attempt {incident.attempt} ended: {incident.cause}: {incident.message}"
    return f"{said}{ruled(incident)}{_backoff(wait)}"


def explained(incident: Incident) -> str:
    """An attempt that was given up has ended for another reason than was told."""
    return (
        f"what ended attempt {incident.attempt} is known now: {incident.cause}: {incident.message}"
        f"{ruled(incident)}"
    )


def not_started(incident: Incident, wait: timedelta) -> str:
    """An attempt is given up before it was started; the next one is to wait so long."""
    said = f"attempt {incident.attempt} could not start: {incident.message}"
    return f"{said}{ruled(incident)}{_backoff(wait)}"


def _backoff(wait: timedelta) -> str:
    """An event is of one moment: there the seconds until then stay true."""
    return f"; restarting in {wait.total_seconds():.0f} s" if wait else ""


def ruled(incident: Incident) -> str:
    """Which rule has decided about it, and what; "" where none has."""
    if not incident.rule:
        return ""
    return f"; spec.failurePolicy.{incident.rule} says {incident.action}"


def with_history(plan: Plan, now: datetime) -> Plan:
    """The plan, with its events in the status that it writes."""
    if not plan.events:
        return plan
    new = tuple(
        HistoryEntry(time=now, type=e.type, reason=e.reason[:64], message=e.message)
        for e in plan.events
    )
    before = plan.status.history[len(new) - KEPT :] if len(new) < KEPT else ()
    return replace(plan, status=replace(plan.status, history=_fitted(before, new)))


def _fitted(
    before: tuple[HistoryEntry, ...], new: tuple[HistoryEntry, ...]
) -> tuple[HistoryEntry, ...]:
    """As many of the earlier ones as there is room for; new ones are shortened, never left out."""
    share = HISTORY_LIMIT // len(new)
    brief = tuple(_shortened(entry, share) for entry in new)
    while before and history_size((*before, *brief)) > HISTORY_LIMIT:
        before = before[1:]
    return (*before, *brief)


def _shortened(entry: HistoryEntry, room: int) -> HistoryEntry:
    without = history_size((replace(entry, message=""),))
    return replace(entry, message=cut(entry.message, max(room - without, 0)))
