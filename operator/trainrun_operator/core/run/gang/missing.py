"""Why the gang is not whole yet, in words that its user can act on: the condition WorkersReady.

Layer: core. The worst trouble is told, and how many workers have it. What comes and goes within
seconds (a quota that a leaving worker still uses, a node that is about to be free) is not told.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from trainrun_operator.core.run.gang.roster import COUNTED
from trainrun_operator.core.run.view import counted

if TYPE_CHECKING:
    from trainrun_operator.core.run.observation import (
        Pending,
        PendingKind,
        Refused,
        RefusedReason,
        WorkerFact,
    )
    from trainrun_operator.core.run.view import View

PATIENCE = timedelta(seconds=10)
"""Trouble that is younger is not told."""

REFUSALS: tuple[RefusedReason, ...] = (
    "Invalid",
    "Forbidden",
    "QuotaExceeded",
    "NameTaken",
    "Unavailable",
)
"""Worst first."""

ENDED_PODS = (
    "; ended pods count, too: those of this run are deleted, the oldest first; delete finished "
    "runs, or set their spec.ttlAfterFinished"
)
"""What is said of a quota on count/pods besides."""

KINDS: tuple[PendingKind, ...] = (
    "ConfigError",
    "ImagePull",
    "SchedulingGated",
    "Unschedulable",
    "Starting",
)
"""Worst first."""

PLACED = "Starting"
"""The kind that is no trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What the gang waits for."""

    reason: str
    """Gathering: nothing but time."""
    message: str


def missing(view: View, chosen: tuple[WorkerFact | None, ...]) -> Missing | None:
    """The worst trouble of the workers that are still to come; None: they are on their way."""
    refusals = _refusals(view, chosen)
    for reason in REFUSALS:
        found = [r for r in refusals if r.reason == reason]
        if found:
            who = f"{len(found)} of {counted(view.config.replicas, 'worker')} cannot be created"
            remedy = ENDED_PODS if COUNTED in found[0].message else ""
            return Missing(reason=reason, message=f"{who}: {found[0].message}{remedy}")
    return _pending(view, chosen)


def _refusals(view: View, chosen: tuple[WorkerFact | None, ...]) -> list[Refused]:
    """Of slots that still lack a worker."""
    return [
        refused
        for refused in sorted(view.observation.refused, key=lambda r: (r.slot, r.name))
        if refused.slot < len(chosen)
        and chosen[refused.slot] is None
        and (refused.since > PATIENCE or refused.reason == "Invalid")
    ]


def _pending(view: View, chosen: tuple[WorkerFact | None, ...]) -> Missing | None:
    pending = [
        (worker, worker.pending)
        for worker in chosen
        if worker is not None and worker.phase == "Pending" and worker.pending is not None
    ]
    for kind in KINDS:
        found = [pair for pair in pending if pair[1].kind == kind and _lasts(pair[1])]
        if found:
            worker, why = found[0]
            verb = "being started" if kind == PLACED else "waiting"
            who = f"{len(found)} of {counted(view.config.replicas, 'worker')} {verb}"
            return Missing(reason=kind, message=f"{who}: {worker.name}: {why.message}")
    return None


def _lasts(pending: Pending) -> bool:
    return pending.kind == PLACED or pending.since > PATIENCE
