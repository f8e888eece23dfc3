"""The status stays small, however large the gang and however long its story.

Layer: core. etcd and every client that watches pay for each byte of it. What takes room and is for
people only is cut, least important first, until the whole fits; what decisions need is never
touched. The start record of 1,024 workers alone takes up to 11 KB.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING

from trainrun_operator.core.display import LASTING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainrun_operator.api.status import Condition, Incident, TrainRunStatus

LIMIT = 16_000
"""Bytes of a status as compact JSON; 16 KiB is promised."""


def fitted(status: TrainRunStatus) -> TrainRunStatus:
    """The status, with texts cut and old incidents left out as far as its size asks for it."""
    for cut in CUTS:
        if status.json_size() <= LIMIT:
            return status
        status = cut(status)
    return status


def _old_messages(status: TrainRunStatus) -> TrainRunStatus:
    old, new = status.incidents[:-1], status.incidents[-1:]
    return status.model_copy(update={"incidents": (*(_short(i, 100) for i in old), *new)})


def _messages(status: TrainRunStatus) -> TrainRunStatus:
    return _with(status, conditions=300, incidents=300, lines=500)


def _few_incidents(status: TrainRunStatus) -> TrainRunStatus:
    return _with(status, conditions=200, incidents=150, lines=0).model_copy(
        update={"incidents": tuple(_short(i, 100) for i in status.incidents[-3:])}
    )


def _no_extras(status: TrainRunStatus) -> TrainRunStatus:
    """Nothing but what holds, what the last incident was, and what decisions need."""
    lasting = tuple(c for c in status.conditions if c.type in LASTING)
    progress = status.progress.model_copy(update={"metrics": {}})
    saved = status.checkpoint
    if saved is not None:
        saved = saved.model_copy(update={"uri": cut(saved.uri, 256)})
    bare = status.model_copy(
        update={"conditions": lasting, "progress": progress, "checkpoint": saved}
    )
    return _with(bare, conditions=60, incidents=100, lines=0).model_copy(
        update={"incidents": tuple(_short(i, 100) for i in status.incidents[-1:])}
    )


CUTS: tuple[Callable[[TrainRunStatus], TrainRunStatus], ...] = (
    _old_messages,
    _messages,
    _few_incidents,
    _no_extras,
)
"""Least important first."""


def _with(status: TrainRunStatus, *, conditions: int, incidents: int, lines: int) -> TrainRunStatus:
    """With texts of at most so many characters; `lines` is for the last lines of one incident."""
    pending = status.incident
    return status.model_copy(
        update={
            "conditions": tuple(_brief(c, conditions) for c in status.conditions),
            "incidents": tuple(_short(i, incidents, lines) for i in status.incidents),
            "incident": _short(pending, incidents, lines) if pending is not None else None,
        }
    )


def _brief(condition: Condition, limit: int) -> Condition:
    return condition.model_copy(update={"message": cut(condition.message, limit)})


def _short(incident: Incident, limit: int, lines: int = 0) -> Incident:
    kept: list[str] = []
    for line in reversed(incident.last_lines):
        lines -= _room(line)
        if lines < 0:
            break
        kept.append(line)
    return incident.model_copy(
        update={
            "message": cut(incident.message, limit),
            "last_lines": tuple(reversed(kept)),
        }
    )


def cut(text: str, limit: int) -> str:
    """At most so many bytes of the text as JSON, with a sign where something is missing."""
    if _room(text) <= limit:
        return text
    sizes = accumulate(_room(char) for char in text)
    kept = sum(size <= limit - _room("…") for size in sizes)
    return f"{text[:kept]}…"


def _room(text: str) -> int:
    """Bytes inside the quotes: output of training processes is full of escapes."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) - 2
