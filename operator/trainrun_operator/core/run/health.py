"""The health of a run for tools that do not know TrainRuns: Flux, Argo CD, Helm's `--wait`.

Layer: core. Follows the rules of kstatus for a Job: Reconciling is True until the run is as its
spec asks, Stalled is True once only its user can get it there, and neither exists while it trains,
is suspended or has succeeded. Invariant: at most one of them, since readers take the first True.
"""

from __future__ import annotations

from trainrun_operator.api.base import RECONCILING, STALLED
from trainrun_operator.api.run.replacing import replace
from trainrun_operator.api.run.status import Condition, PhaseName, TrainRunStatus
from trainrun_operator.core.run.display import INVALID_SPEC, TOO_LARGE, condition, with_marks
from trainrun_operator.core.run.view import View

AS_ASKED: tuple[PhaseName, ...] = ("Running", "Finishing", "Suspended", "Succeeded")
"""Phases in which the run is as its spec asks."""


def with_health(view: View, status: TrainRunStatus) -> TrainRunStatus:
    """`status`, with the one of the two conditions that holds."""
    others = tuple(c for c in status.conditions if c.type not in (RECONCILING, STALLED))
    status = replace(status, conditions=others)
    if (why := _stalled(view, status)) is not None:
        return with_marks(status, condition(view, STALLED, "True", why.reason, why.message))
    if status.phase in AS_ASKED:
        return status
    running = status.condition("Running")
    message = "" if running is None else running.message
    reason = status.reason or status.phase
    return with_marks(status, condition(view, RECONCILING, "True", reason, message))


def _stalled(view: View, status: TrainRunStatus) -> Condition | None:
    for kind, wanted in (("Failed", "True"), ("TemplateValid", "False"), (TOO_LARGE, "True")):
        found = status.condition(kind)
        if found is None or found.status != wanted:
            continue
        # A condition about an earlier spec says nothing about this one.
        if kind == "Failed" or found.observed_generation == status.observed_generation:
            return found
    invalid = view.observation.invalid
    return condition(view, STALLED, "True", INVALID_SPEC, invalid) if invalid else None
