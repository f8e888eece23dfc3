"""The status of a TrainSweep, which the operator writes for its users.

Layer: api. Invariant: under 16 KiB for any number of trials: lists and texts are bounded. The log
is the truth; nothing here is read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from trainrun_operator.api.base import MapList
from trainrun_operator.api.run.status import Condition
from trainrun_operator.api.run.status_parts import StatusPart, as_json

SweepPhase = Literal["Pending", "Running", "Suspended", "Succeeded", "Failed", "Terminating"]
"""Terminating: it was deleted, and a finalizer keeps it."""

MAX_RUNNING = 32
MAX_LAST_ENDED = 10
MAX_MESSAGE = 512
"""Bytes as JSON; for most texts this is the number of characters."""


@dataclass(frozen=True, kw_only=True)
class TrialCounts(StatusPart):
    """How many trials are in which state."""

    open: int = 0
    succeeded: int = 0
    stopped: int = 0
    diverged: int = 0
    errored: int = 0
    skipped: int = 0
    text: str = ""
    """`37/100`: ended trials, of all that the budget allows."""


@dataclass(frozen=True, kw_only=True)
class BestTrial(StatusPart):
    """The best trial so far."""

    trial: int
    value: str
    """As Python writes it: JSON has no infinity."""
    step: int
    text: str = ""
    """The value in six digits."""
    params: dict[str, Any] = field(default_factory=dict)
    """Left out if they are long; the log has them."""


@dataclass(frozen=True, kw_only=True)
class EndedTrial(StatusPart):
    """An ended trial."""

    trial: int
    state: str
    reason: str
    message: str = ""
    value: str = ""
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class TrainSweepStatus(StatusPart):
    """status of a TrainSweep."""

    phase: SweepPhase = "Pending"
    reason: str = ""
    message: str = ""
    asked: int = 0
    """Trials that have parameters."""
    trials: TrialCounts = TrialCounts()
    best: BestTrial | None = None
    running: tuple[int, ...] = ()
    """Numbers of the trials at work, the lowest ones, at most 32."""
    last_ended: tuple[EndedTrial, ...] = ()
    """The ended trials with the highest numbers, at most 10."""
    clerks: int = 0
    """1 while its clerk answers; 0 on a laptop."""
    active_seconds: int = 0
    """Seconds with trials at work."""
    position: int = 0
    """Position in the log up to which the operator has acted."""
    observed_generation: int = 0
    """metadata.generation of the spec that the operator acted on last; -1: on none yet; 0 on a
    laptop."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), MapList("type")] = ()
    """Complete, Failed, Suspended, ClerkReady, StorageReady once the store has failed to answer,
    and one of Reconciling and Stalled, or neither; none on a laptop."""
    holder: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """The installation of the operator that leads the sweep: its namespace, and the key by which it
    recognizes its pods."""


_STATUS = TypeAdapter(TrainSweepStatus)


def status_from(json_object: Mapping[str, Any]) -> TrainSweepStatus:
    """The status in a custom resource; raises ValueError that names every field that is wrong."""
    return _STATUS.validate_python(json_object)


def json_object(status: TrainSweepStatus) -> dict[str, Any]:
    """The status as JSON for the custom resource."""
    return as_json(_STATUS, status)
