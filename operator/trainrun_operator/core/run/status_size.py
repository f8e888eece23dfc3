"""The status stays small, however large the gang and however long its history.

Layer: core. etcd and every client that watches pay for each byte of it. What takes room and is for
people only is cut, least important first, until the whole fits; what is counted is never
touched. The start record of 1,024 workers alone takes up to 11 KB: of a run that large the nodes of
older incidents are forgotten as well, and no longer avoided.

The newest events stand in the status: an event is written there with what it tells, and told by
whoever reads it there. So it is told when the answer to the write got lost, and when the leader
that wrote it has died. Two who tell the same entry tell the same event, of the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from trainrun._common.text import cut, newest_of, room
from trainrun_operator.api.run.status import Condition, HistoryEntry, TrainRunStatus, json_size
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.boundary import Plan
from trainrun_operator.core.run.display import LASTING
from trainrun_operator.core.run.incidents.ledger import CUT

LIMIT = 15_250
"""Bytes of a status as compact JSON, its history and story aside; 20 KiB is promised for all."""

HISTORY_LIMIT = 1_300
"""Bytes of its history. It has room of its own: texts that were cut for it would come back when it
gets shorter, and be news again."""

KEPT = 4
"""Events that the status holds at least, if they fit: who takes over tells them again."""

_EMPTY = json_size(TrainRunStatus())


def fitted(status: TrainRunStatus) -> TrainRunStatus:
    """The status, with texts cut and old incidents left out as far as its size asks for it."""
    for shorten in CUTS:
        if json_size(replace(status, history=(), chapter=None, story=())) <= LIMIT:
            return status
        status = shorten(status)
    return status


def history_size(history: tuple[HistoryEntry, ...]) -> int:
    """Bytes that it takes in the status."""
    return json_size(TrainRunStatus(history=history)) - _EMPTY


def _old_messages(status: TrainRunStatus) -> TrainRunStatus:
    old, new = status.incidents[:-1], status.incidents[-1:]
    return replace(status, incidents=(*(_short(i, 100) for i in old), *new))


def _messages(status: TrainRunStatus) -> TrainRunStatus:
    return _with(status, conditions=300, incidents=300, lines=500)


def _few_incidents(status: TrainRunStatus) -> TrainRunStatus:
    brief = _with(status, conditions=200, incidents=150, lines=0)
    return replace(brief, incidents=tuple(_short(i, 100) for i in status.incidents[-3:]))


def _no_extras(status: TrainRunStatus) -> TrainRunStatus:
    """Nothing but what holds, what the last incident was, and what is counted."""
    progress, saved = replace(status.progress, metrics={}), status.checkpoint
    posted = status.posted and replace(status.posted, metrics={})
    saved = saved and replace(saved, uri=cut(saved.uri, 256))
    bare = replace(status, progress=progress, posted=posted, checkpoint=saved)
    brief = _with(bare, conditions=60, incidents=100, lines=0)
    return replace(brief, incidents=tuple(_short(i, 100) for i in status.incidents[-1:]))


def _no_warnings(status: TrainRunStatus) -> TrainRunStatus:
    """Only where the gang is so large that its start record fills the status."""
    lasting = tuple(c for c in status.conditions if c.type in LASTING)
    return replace(_no_extras(status), conditions=tuple(_brief(c, 60) for c in lasting))


CUTS: tuple[Callable[[TrainRunStatus], TrainRunStatus], ...] = (
    _old_messages,
    _messages,
    _few_incidents,
    _no_extras,
    _no_warnings,
)
"""Least important first."""


def _with(status: TrainRunStatus, *, conditions: int, incidents: int, lines: int) -> TrainRunStatus:
    """With texts of at most so many characters; `lines` is for the last lines of one incident."""
    pending = status.incident
    return replace(
        status,
        conditions=tuple(_brief(c, conditions) for c in status.conditions),
        incidents=tuple(_short(i, incidents, lines) for i in status.incidents),
        incident=_short(pending, incidents, lines) if pending is not None else None,
    )


def _brief(condition: Condition, limit: int) -> Condition:
    return replace(condition, message=cut(condition.message, limit))


def _short(incident: Incident, limit: int, lines: int = 0) -> Incident:
    kinds = incident.exception
    return replace(
        incident,
        message=cut(incident.message, limit),
        last_lines=newest_of(incident.last_lines, lines, size=room),
        exception=kinds if len(kinds) <= 2 else (kinds[0], CUT),
    )


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
