"""Causes of an incident: how they rank as an explanation and which budget they are charged to.

Layer: core. Adding a cause is a row in CAUSES and a rule in `trainrun_operator.core.losses`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Cause(StrEnum):
    """Why an attempt ended early; the same words in status, events, metrics and docs."""

    PREEMPTED = "Preempted"
    EVICTED = "Evicted"
    NODE_LOST = "NodeLost"
    OUT_OF_MEMORY = "OutOfMemory"
    APP_ERROR = "AppError"
    START_FAILED = "StartFailed"
    RENDEZVOUS_FAILED = "RendezvousFailed"
    STORAGE_ERROR = "StorageError"
    CHECKPOINT_DAMAGED = "CheckpointDamaged"
    INTERRUPTED = "Interrupted"
    UNKNOWN = "Unknown"


def cause_named(name: str) -> Cause:
    """The cause that a status names; Unknown for a word that only another version knows."""
    return next((cause for cause in Cause if cause == name), Cause.UNKNOWN)


Charge = Literal["failures", "preemptions", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseRule:
    """How a cause is treated."""

    charge: Charge
    """`preemptions` falls back to failures when failurePolicy.maxPreemptions is absent."""
    advice: str
    """What a user can do about it."""


CAUSES: dict[Cause, CauseRule] = {
    Cause.PREEMPTED: CauseRule(
        charge="preemptions",
        advice="set failurePolicy.maxPreemptions: -1 to survive any number of preemptions",
    ),
    Cause.EVICTED: CauseRule(
        charge="preemptions",
        advice="request the memory and ephemeral storage that a worker uses, so that its node does "
        "not run short; failurePolicy.maxPreemptions gives evictions their own budget",
    ),
    Cause.NODE_LOST: CauseRule(
        charge="preemptions",
        advice="look at the node; failurePolicy.maxPreemptions gives lost nodes their own budget",
    ),
    Cause.OUT_OF_MEMORY: CauseRule(
        charge="failures", advice="raise the memory limit or use less memory per process"
    ),
    Cause.APP_ERROR: CauseRule(charge="failures", advice="read the last lines of the rank named"),
    Cause.START_FAILED: CauseRule(
        charge="failures", advice="check command, image and mounts in workers.template"
    ),
    Cause.RENDEZVOUS_FAILED: CauseRule(
        charge="none", advice="nothing: the next attempt uses another port"
    ),
    Cause.STORAGE_ERROR: CauseRule(
        charge="failures", advice="check that the store is reachable and has room"
    ),
    Cause.CHECKPOINT_DAMAGED: CauseRule(
        charge="none", advice="nothing: the checkpoint before it is used; look at bad/ in the store"
    ),
    Cause.INTERRUPTED: CauseRule(charge="none", advice="nothing: the run continues"),
    Cause.UNKNOWN: CauseRule(charge="failures", advice="look at the worker's output and its node"),
}
