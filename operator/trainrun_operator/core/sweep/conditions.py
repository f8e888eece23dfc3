"""The conditions of a sweep, for `kubectl wait` and for people.

Layer: core, pure.
"""

from __future__ import annotations

from datetime import datetime

from trainrun._common.text import cut
from trainrun_operator.api.run.status import Condition, ConditionStatus
from trainrun_operator.api.sweep.status import MAX_MESSAGE, TrainSweepStatus
from trainrun_operator.core.sweep.clerking import OF_THE_STORE
from trainrun_operator.core.sweep.observation import ClerkUnknown

_Told = tuple[str, ConditionStatus, str, str]
"""Type, status, reason, message."""
TOO_LARGE = "TooLarge"
"""The object has more than is read of one; what runs goes on."""

_PHASES = (("Complete", "Succeeded"), ("Failed", "Failed"), ("Suspended", "Suspended"))
"""Conditions that hold in one phase."""


def with_conditions(
    status: TrainSweepStatus,
    *,
    before: TrainSweepStatus,
    clerk: ClerkUnknown | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """Complete, Failed, Suspended, ClerkReady and StorageReady; `clerk` says why the log is not
    known.

    Of a sweep that is over no clerk is asked any more.
    """
    known = {it.type: it for it in before.conditions}
    told: list[_Told] = [
        (kind, "True" if status.phase == phase else "False", status.reason, status.message)
        for kind, phase in _PHASES
        if status.phase == phase or kind in known
    ]
    if status.phase not in ("Succeeded", "Failed"):
        told.append(_clerk(clerk))
    told += _store(clerk, known.get("StorageReady"), over=status.phase in ("Succeeded", "Failed"))
    return tuple(_condition(known.get(it[0]), it, status, now) for it in told)


def with_too_large(status: TrainSweepStatus, *, now: datetime) -> tuple[Condition, ...]:
    """The conditions of `status` and one that the object is too large, as its message says."""
    before = {it.type: it for it in status.conditions}
    told: _Told = (TOO_LARGE, "True", TOO_LARGE, status.message)
    new = _condition(before.pop(TOO_LARGE, None), told, status, now)
    return (*before.values(), new)


def _clerk(clerk: ClerkUnknown | None) -> _Told:
    if clerk is None:
        return "ClerkReady", "True", "Ready", "the log is known"
    return "ClerkReady", "False", clerk.reason, clerk.message


def _store(
    clerk: ClerkUnknown | None, before: Condition | None, *, over: bool
) -> tuple[_Told, ...]:
    """Told once there is trouble with it, and from then on."""
    if clerk is not None and clerk.reason in OF_THE_STORE and not over:
        return (("StorageReady", "False", clerk.reason, clerk.message),)
    if before is None:
        return ()
    if clerk is None or clerk.reason == "ReadingLog" or before.status == "True":
        return (("StorageReady", "True", "Resolved", "the store answers again"),)
    return (("StorageReady", "Unknown", "NotAsked", "no clerk is there that has asked it since"),)


def _condition(
    before: Condition | None, told: _Told, status: TrainSweepStatus, now: datetime
) -> Condition:
    kind, said, reason, message = told
    if before is not None and (before.status, before.reason) == (said, reason):
        now = before.last_transition_time
    return Condition(
        type=kind,
        status=said,
        reason=reason or "Unknown",
        message=cut(message, MAX_MESSAGE),
        last_transition_time=now,
        observed_generation=status.observed_generation,
    )
