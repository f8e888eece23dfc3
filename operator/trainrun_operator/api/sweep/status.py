"""The status of a TrainSweep: what the operator says about it.

Layer: api. Invariant: under 16 KiB, whatever the number of trials: lists and texts are bounded. The
log is the truth; nothing here is read back.
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
"""Terminating: it was deleted, and somebody's finalizer keeps it."""

MAX_RUNNING = 32
MAX_LAST_ENDED = 10
MAX_MESSAGE = 512
"""Bytes as JSON: of most texts so many characters."""


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
    """Ended of all that are to be tried: `37/100`."""


@dataclass(frozen=True, kw_only=True)
class BestTrial(StatusPart):
    """The trial that is ahead."""

    trial: int
    value: str
    """As Python writes it: JSON has no infinity."""
    step: int
    text: str = ""
    """The value in six digits."""
    params: dict[str, Any] = field(default_factory=dict)
    """Left out where they are long; the log has them."""


@dataclass(frozen=True, kw_only=True)
class EndedTrial(StatusPart):
    """A trial that has ended."""

    trial: int
    state: str
    reason: str
    message: str = ""
    value: str = ""
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class TrainSweepStatus(StatusPart):
    """What the operator says about a sweep."""

    phase: SweepPhase = "Pending"
    reason: str = ""
    message: str = ""
    asked: int = 0
    """Trials that have parameters."""
    trials: TrialCounts = TrialCounts()
    best: BestTrial | None = None
    running: tuple[int, ...] = ()
    """Trials at work, the lowest numbers, at most 32."""
    last_ended: tuple[EndedTrial, ...] = ()
    """Those with the highest numbers, at most 10."""
    clerks: int = 0
    """1 while its clerk answers; 0 on a laptop."""
    active_seconds: int = 0
    """Time with trials at work."""
    position: int = 0
    """Of the log, as far as it was acted on."""
    observed_generation: int = 0
    """metadata.generation of the spec that was acted on last; -1 until an operator has looked; 0 on
    a laptop."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), MapList("type")] = ()
    """Complete, Failed, Suspended, ClerkReady, StorageReady once the store has not answered, and
    one of Reconciling and Stalled, or neither; none on a laptop."""
    holder: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """The installation of the operator that leads the sweep: its namespace, and which key it knows
    its pods by."""


_STATUS = TypeAdapter(TrainSweepStatus)


def status_from(json_object: Mapping[str, Any]) -> TrainSweepStatus:
    """The status in a custom resource; raises ValueError that names every field that is wrong."""
    return _STATUS.validate_python(json_object)


def json_object(status: TrainSweepStatus) -> dict[str, Any]:
    """What stands in the custom resource."""
    return as_json(_STATUS, status)
