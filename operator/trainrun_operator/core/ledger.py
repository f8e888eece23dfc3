"""Budgets: what an incident is charged to, whether the run may go on, and when it is counted.

Layer: core. Invariants: counters never go down; an incident is charged once, when it is settled;
settling happens in the status write that ends its provisional state (start record, verdict,
suspension).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from trainrun_operator.api.status import MAX_INCIDENTS, Failures, Incident, TrainRunStatus
from trainrun_operator.core.attribution import budget_of
from trainrun_operator.core.causes import CAUSES, Cause, cause_named

if TYPE_CHECKING:
    from trainrun_operator.core.config import RunConfig

JITTER = 0.2
"""A backoff is lengthened by up to this part, so that runs that failed together spread out."""

FREE_TRIES = 3
"""So many fruitless attempts in a row may end for one of FREE_CAUSES without being charged; then
something is wrong that another port, or an older checkpoint, does not cure."""

FREE_CAUSES = (Cause.RENDEZVOUS_FAILED, Cause.CHECKPOINT_DAMAGED)
"""Causes that trying again cures, but not for ever."""

LINES_FOR = 2
"""Newest settled incidents that keep their last lines of output; a status must stay small."""

SHORT_MESSAGE = 200
"""Characters of the message that an older incident keeps."""

Allowed = Literal["Restart", "Fail"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the run may start again after an incident."""

    allowed: Allowed
    reason: str
    message: str


def charged(status: TrainRunStatus, incident: Incident, config: RunConfig) -> Incident:
    """The incident with the budget it will be charged to, as the failurePolicy reads now.

    FREE_CAUSES are not charged, but a run whose every attempt ends with one would never end.
    """
    cause = cause_named(incident.cause)
    free = cause in FREE_CAUSES and status.fruitless <= FREE_TRIES
    budget = budget_of(cause, config)
    if cause in FREE_CAUSES and not free:
        budget = "failures"
    return incident.model_copy(update={"budget": budget})


def judge(status: TrainRunStatus, incident: Incident, config: RunConfig) -> Verdict:
    """Whether one more incident fits into its budget."""
    budget = charged(status, incident, config).budget
    if budget == "none":
        return Verdict(allowed="Restart", reason=incident.cause, message=incident.message)
    used, limit, field = _account(status, budget, config)
    if limit == -1 or used < limit:
        left = "no limit" if limit == -1 else f"{used + 1} of {limit}"
        return Verdict(
            allowed="Restart",
            reason=incident.cause,
            message=f"{incident.message}; charged to {field}: {left}",
        )
    advice = CAUSES[cause_named(incident.cause)].advice
    return Verdict(
        allowed="Fail",
        reason=f"{field[0].upper()}{field[1:]}Exceeded",
        message=(
            f"{incident.message} ({incident.cause}); spec.failurePolicy.{field} is {limit} and "
            f"{used} {'was' if used == 1 else 'were'} used before: {advice}. Committed checkpoints "
            f"are kept; a run with a higher limit on the same storage continues from them"
        ),
    )


def _account(status: TrainRunStatus, budget: str, config: RunConfig) -> tuple[int, int, str]:
    if budget == "preemptions" and config.max_preemptions is not None:
        return status.failures.preemptions, config.max_preemptions, "maxPreemptions"
    return status.failures.counted, config.max_failures, "maxFailures"


def settle(
    status: TrainRunStatus, incident: Incident, config: RunConfig
) -> tuple[Failures, tuple[Incident, ...]]:
    """Charge the incident: the new budgets and the list with it at the end."""
    incident = charged(status, incident, config)
    counted = incident.budget != "none"
    final = incident.model_copy(update={"counted": counted})
    failures = Failures(
        counted=status.failures.counted + (incident.budget == "failures"),
        preemptions=status.failures.preemptions + (incident.budget == "preemptions"),
    )
    return tally(failures, config, pending=None), _kept((*status.incidents, final))


def _kept(incidents: tuple[Incident, ...]) -> tuple[Incident, ...]:
    """The newest incidents; the older of them without what takes most room."""
    newest = incidents[-MAX_INCIDENTS:]
    old, new = newest[:-LINES_FOR], newest[-LINES_FOR:]
    return (*(_short(incident) for incident in old), *new)


def _short(incident: Incident) -> Incident:
    message = incident.message
    if len(message) > SHORT_MESSAGE:
        message = f"{message[: SHORT_MESSAGE - 1]}…"
    return incident.model_copy(update={"last_lines": (), "message": message})


def tally(failures: Failures, config: RunConfig, *, pending: Incident | None) -> Failures:
    """The budgets with their text, an incident that is not settled yet included in it."""
    used = failures.counted + (pending is not None and pending.budget == "failures")
    limit = "no limit" if config.max_failures == -1 else str(config.max_failures)
    return Failures(
        counted=failures.counted,
        preemptions=failures.preemptions,
        limit=config.max_failures,
        text=f"{used}/{limit}",
    )


def backoff(config: RunConfig, *, fruitless: int, attempt: int) -> timedelta:
    """How long to wait before the attempt after `attempt`: 0, 0, then initial * factor^k up to max.

    `fruitless` counts attempts in a row that ended without a new step, this one included: a run
    that makes progress restarts at once. The jitter is a function of run and attempt, so that every
    operator decides the same.
    """
    if fruitless < 2 or not config.backoff_initial:
        return timedelta(0)
    growth = config.backoff_factor ** min(fruitless - 2, 64)
    plain = min(config.backoff_initial.total_seconds() * growth, config.backoff_max.total_seconds())
    spread = zlib.crc32(f"{config.uid}/{attempt}".encode()) / 0xFFFFFFFF
    return timedelta(seconds=plain * (1 + JITTER * spread))
