"""The status stays small, however large the gang and however long its history.

Layer: core. etcd and every watching client pay for each byte of it. Parts that are for people only
are cut, least important first, until the whole fits; counters are never touched. The start record
of 1,024 workers alone takes up to 11 KB: a run that large also forgets the nodes of older
incidents, and no longer avoids them.

The status contains the newest events: an event is written there with the change that it reports,
and emitted by any operator that reads it. So it is emitted even if the answer to the write is lost,
or if the leader that wrote it has died. Two operators that emit the same entry emit the same event,
with the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from trainrun._common.text import cut, newest_of, room
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import Condition, HistoryEntry, TrainRunStatus, json_size
from trainrun_operator.api.run.status_parts import Incident
from trainrun_operator.core.run.boundary import Plan
from trainrun_operator.core.run.display import LASTING
from trainrun_operator.core.run.incidents.ledger import CUT

LIMIT = 15_250
"""Bytes of a status as compact JSON, without history and story; 20 KiB is promised for all."""

HISTORY_LIMIT = 1_300
"""Bytes of its history. It has its own room: texts cut in its favour would come back when it gets
shorter, and be news again."""

KEPT = 4
"""Events that the status keeps at least, if they fit: a new leader emits them again."""

_EMPTY = json_size(TrainRunStatus())


def fitted(status: TrainRunStatus) -> TrainRunStatus:
    """The status, with texts cut and old incidents left out as far as needed to fit."""
    for shorten in CUTS:
        if json_size(replace(status, history=(), chapter=None, story=())) <= LIMIT:
            return status
        status = shorten(status)
    return status


def history_size(history: tuple[HistoryEntry, ...]) -> int:
    """Bytes that the history takes in the status."""
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
    """Only the conditions, the last incident and the counters remain."""
    progress, saved = replace(status.progress, metrics={}), status.checkpoint
    posted = status.posted and replace(status.posted, metrics={})
    output = status.output and replace(status.output, metrics={}, line="")
    saved = saved and replace(saved, uri=cut(saved.uri, 256))
    bare = replace(status, progress=progress, posted=posted, checkpoint=saved, output=output)
    brief = _with(bare, conditions=60, incidents=100, lines=0)
    return replace(brief, incidents=tuple(_short(i, 100) for i in status.incidents[-1:]))


def _no_warnings(status: TrainRunStatus) -> TrainRunStatus:
    """Needed only for a gang so large that its start record fills the status."""
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
    """With texts cut to these lengths in characters; `lines`: the last lines of one incident."""
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
    """New entries, shortened but never left out, after as many earlier ones as fit."""
    share = HISTORY_LIMIT // len(new)
    brief = tuple(_shortened(entry, share) for entry in new)
    while before and history_size((*before, *brief)) > HISTORY_LIMIT:
        before = before[1:]
    return (*before, *brief)


def _shortened(entry: HistoryEntry, room: int) -> HistoryEntry:
    without = history_size((replace(entry, message=""),))
    return replace(entry, message=cut(entry.message, max(room - without, 0)))
