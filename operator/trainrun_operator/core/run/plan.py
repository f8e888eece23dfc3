"""What the core decides: a status to write first, or else actions and answers for agents.

Layer: core. A plan with `transition` carries nothing else to do: its status must be written (under
a precondition) before the next pass acts on it. Answers are derived from the *written* status, so
any operator that reads the same status gives the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from trainrun.contract.answer import Answer
    from trainrun_operator.api.run.status import TrainRunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWorker:
    """Create the worker of a slot; idempotent by name."""

    name: str
    slot: int
    created_for: int
    template_hash: str
    avoid: tuple[str, ...] = ()
    """Names of nodes that it must not be placed on."""
    disfavor: tuple[str, ...] = ()
    """Names of nodes that it is better not placed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWorker:
    """Delete a worker; what still runs there is fenced by the attempt number."""

    name: str
    reason: str
    force: bool = False
    """Without grace, and without waiting for a node that cannot confirm it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRun:
    """Delete the TrainRun itself: ttlAfterFinished is over."""


Action = CreateWorker | DeleteWorker | DeleteRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line for the run's history; it is written with the status of its plan."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The outcome of one pass."""

    reason: str
    """CamelCase: what the pass decided."""
    message: str
    """For people."""
    status: TrainRunStatus
    """The status as it should read."""
    transition: bool = False
    """Write `status` now, before anything else, and decide again; otherwise it is for display and
    may be written lazily."""
    actions: tuple[Action, ...] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)
    """Worker name -> its agent's desired state. A worker without an entry gets none: its agent
    goes on with what it does."""
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None
    """Decide again after this time even if nothing happens."""
