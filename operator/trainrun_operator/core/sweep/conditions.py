"""The conditions of a sweep, for `kubectl wait` and for people.

Layer: core, pure.
"""

from __future__ import annotations

from datetime import datetime

from trainrun_operator.api.run.status import Condition
from trainrun_operator.api.sweep.status import TrainSweepStatus
from trainrun_operator.core.sweep.observation import ClerkUnknown


def with_conditions(
    status: TrainSweepStatus,
    *,
    before: TrainSweepStatus,
    clerk: ClerkUnknown | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """Complete, Failed, Suspended and ClerkReady; `clerk` says why the log is not known.

    Of a sweep that is over no clerk is asked any more.
    """
    told = [
        ("Complete", status.phase == "Succeeded", status.reason, status.message),
        ("Failed", status.phase == "Failed", status.reason, status.message),
        ("Suspended", status.phase == "Suspended", status.reason, status.message),
    ]
    over = status.phase in ("Succeeded", "Failed")
    if not over:
        reason, message = ("Ready", "the log is known") if clerk is None else _why(clerk)
        told.append(("ClerkReady", clerk is None, reason, message))
    known = {it.type: it for it in before.conditions}
    return tuple(
        _condition(known.get(kind), kind, status, (holds, reason, message), now)
        for kind, holds, reason, message in told
        if holds or kind == "ClerkReady" or kind in known
    )


def _why(clerk: ClerkUnknown) -> tuple[str, str]:
    return clerk.reason, clerk.message


def _condition(
    before: Condition | None,
    kind: str,
    status: TrainSweepStatus,
    told: tuple[bool, str, str],
    now: datetime,
) -> Condition:
    holds, reason, message = told
    said = "True" if holds else "False"
    same = before is not None and before.status == said
    if before is not None and same and before.reason == reason:
        now = before.last_transition_time
    return Condition(
        type=kind,
        status="True" if holds else "False",
        reason=reason or "Unknown",
        message=message,
        last_transition_time=now,
        observed_generation=status.observed_generation,
    )
