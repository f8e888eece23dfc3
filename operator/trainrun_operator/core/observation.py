"""What the core may look at: the facts of one pass, gathered by a world.

Layer: core. Frozen values; the order of `workers` has no meaning. Everything unknown is None: an
operator that has just started knows no agent's state, and that is not a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from trainrun.protocol import AgentState, Notice
    from trainrun_operator.api.status import TrainRunStatus
    from trainrun_operator.core.causes import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoss:
    """What the world itself knows of a worker's end or of its node."""

    cause: Cause
    message: str
    age: timedelta = timedelta(0)
    """How long ago the world learned it."""


WorkerPhase = Literal["Pending", "Running", "Ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFact:
    """One worker (a pod; a process group in the local world) that belongs to the run."""

    name: str
    slot: int
    created_for: int
    """Number of its creation; with the slot it makes the name."""
    template_hash: str
    phase: WorkerPhase
    """Pending: not placed or not started; Ended: it will never run again."""
    deleting: bool = False
    node: str = ""
    age: timedelta = timedelta(0)
    """Since its creation."""
    exit_code: int | None = None
    """Of an Ended worker's agent, where known."""
    loss: WorkerLoss | None = None
    """Set when the world knows that the worker or its node is gone, whatever its phase."""
    notice: Notice | None = None
    """The world was told that the worker will be taken away."""
    agent: AgentState | None = None
    """The last heartbeat; None: never heard (by this operator)."""
    silent_for: timedelta | None = None
    """Since the last heartbeat, or since this operator began to listen if it never heard one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that one decision is based on."""

    now: datetime
    """UTC; the world's clock."""
    generation: int = 1
    """metadata.generation of the spec that `config` was made from."""
    status: TrainRunStatus
    """As last written, with the world's precondition for the next write."""
    workers: tuple[WorkerFact, ...] = ()
    listening_for: timedelta
    """How long this operator has been able to hear agents without interruption: silence is judged
    only when this is longer than the heartbeat timeout."""
