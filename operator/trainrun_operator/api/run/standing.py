"""How a run stands: budgets used, workers that answer, progress, the newest checkpoint.

Layer: api. Parts of the status that people read; `core/run/display.py` makes most of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from operator import not_
from typing import Annotated, Any

from pydantic import Field

from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status_part import StatusPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures(StatusPart):
    """Budgets used so far; the numbers never go down."""

    counted: int = 0
    """Settled incidents charged to failurePolicy.maxFailures."""
    preemptions: int = 0
    """Settled incidents charged to failurePolicy.maxPreemptions."""
    start_failures: Annotated[int, Field(exclude_if=not_)] = 0
    """Settled incidents charged to failurePolicy.maxStartFailures; absent where there are none."""
    limit: int = 0
    """failurePolicy.maxFailures, -1 for no limit."""
    text: Annotated[str, Field(max_length=32)] = ""
    """`1/3`: failures against the limit, an incident that is not settled yet included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers(StatusPart):
    """How many workers take part."""

    ready: int = 0
    """Workers whose agent answers."""
    total: int = 0
    """spec.workers.replicas."""
    text: Annotated[str, Field(max_length=32)] = ""
    """`4/4`."""
    selector: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """Label selector of this run's worker pods."""
    standby_memory: Annotated[str, Field(max_length=16, exclude_if=not_)] = ""
    """`433Mi`: the memory of the largest standby interpreter, where workers.warmStart keeps them
    and one has been ready."""
    leaving: Annotated[int, Field(exclude_if=not_)] = 0
    """Workers of a run that is over which may still store what belongs to its end: metrics, lines,
    `finished.json`. Absent once all have left, or are not heard any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(StatusPart):
    """How far the training is."""

    step: int | None = None
    """The highest step that rank 0's worker reported in this attempt; before it reports one, the
    step that the attempt resumed from."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics of that report; a number that is not finite is {"float": "NaN"}."""
    time: datetime | None = None
    """When the step was first seen."""
    stall_seconds: int = 0
    """Seconds that `report(checkpoint=)` had waited because earlier checkpoints were still being
    uploaded, in the attempt of this step and on the rank where it is most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedProgress(StatusPart):
    """How far the training is, as its framework posts it: a Hugging Face Trainer does by itself.

    For people alone: no decision reads it."""

    text: Annotated[str, Field(max_length=64)] = ""
    """`1200/5000`, or `24 %` from a framework that posts no steps."""
    step: int | None = None
    """The step that it is at."""
    total_steps: int | None = None
    """The step at which it ends."""
    percent: int | None = None
    """How much of it is done."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics of the newest post; a number that is not finite is {"float": "NaN"}."""
    remaining_seconds: int | None = None
    """Seconds from `time` until it ends, if it goes on as in this attempt so far."""
    time: datetime
    """When this was first seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointStatus(StatusPart):
    """The newest committed checkpoint known to the operator."""

    uri: Annotated[str, Field(max_length=2048)]
    """Its folder in the store."""
    step: int
    """Its step."""
    attempt: int
    """The attempt that saved it."""
    time: datetime
    """When it was committed."""
    size_bytes: int = 0
    """Bytes of all its files."""

    @property
    def id(self) -> CheckpointId:
        """Which checkpoint it is."""
        return CheckpointId(attempt=self.attempt, step=self.step)
