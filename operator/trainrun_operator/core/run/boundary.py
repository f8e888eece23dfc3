"""Where a world and the core meet: what a decision may look at, and what it results in.

Layer: core. Facts are frozen values, gathered by a world; the order of `workers` has no meaning.
Everything unknown is None: an operator that has just started knows no agent's state, and that is
not a failure. An installation of the operator has a name, by which a status says who leads a run.

A plan is a status to write first, or else actions and answers for agents. One with `transition`
carries nothing else to do: its status must be written (under a precondition) before the next pass
acts on it. Answers are derived from the *written* status, so any operator that reads the same
status gives the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from trainrun.contract.agent_config import StorageConfig
from trainrun.contract.agent_state import AgentState, Notice, Problem
from trainrun.contract.answer import Answer
from trainrun_operator.api.run.status import TrainRunStatus
from trainrun_operator.api.run.status_parts import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An operator with all its replicas; nameless where there can be only one."""

    name: str = ""
    """The namespace that it lives in: there is room for one in each."""
    key: str = ""
    """Tells the key by which it knows its own workers from others: one that has lost its key knows
    none of them, nor do they know it."""
    adopts: frozenset[str] = frozenset()
    """Names of installations that are gone, whose runs it takes over."""

    @property
    def holder(self) -> str:
        """As a status names it; empty: nameless."""
        return f"{self.name}/{self.key}" if self.name else ""

    def may_lead(self, holder: str) -> bool:
        """Whether a run with this holder is its own, or becomes it."""
        return not holder or name_of(holder) in {self.name, *self.adopts}


NAMELESS = Installation()
"""Where nobody else can be: on one machine."""


def name_of(holder: str) -> str:
    """The namespace of the holder's installation."""
    return holder.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoss:
    """What the world itself knows of a worker's end or of its node."""

    cause: Cause
    message: str
    age: timedelta = timedelta(0)
    """How long ago the world learned it."""
    container: str = ""
    """The one whose end it is, where it is the end of one."""
    exit_code: int | None = None
    """Of that container, where its end says all."""
    unreachable: bool = False
    """Its node cannot be reached, so nobody there can end it: it is deleted by force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStrike:
    """An incident that speaks against the node it began on."""

    node: str
    run: str
    """Name of the run, in its namespace."""
    cause: str
    time: datetime


PendingKind = Literal["ConfigError", "ImagePull", "SchedulingGated", "Unschedulable", "Starting"]
"""Worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Why a Pending worker has not started."""

    kind: PendingKind
    """Unschedulable: there is no room; SchedulingGated: nobody looks for room yet; ImagePull: an
    image cannot be had; ConfigError: a secret, config map or volume is missing; Starting: placed,
    and on its way."""
    message: str
    """What is missing, in the world's own words."""
    since: timedelta
    """How long it has waited for this."""


WorkerPhase = Literal["Pending", "Running", "Ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFact:
    """One worker (a pod; a process group in the local world) that belongs to the run."""

    name: str
    slot: int
    created_for: int
    """Number of its creation; with the slot it makes the name."""
    template_hash: str
    storage: StorageConfig | None = None
    """Where its agent was told to find the storage; None: that is not known."""
    phase: WorkerPhase
    """Pending: not placed or not started; Ended: it will never run again."""
    deleting: bool = False
    node: str = ""
    avoids: tuple[str, ...] = ()
    """Names of nodes that it may not be placed on, since its creation."""
    age: timedelta = timedelta(0)
    """Since its creation."""
    running_for: timedelta | None = None
    """Since it was seen to run; None where the world starts workers at their creation."""
    exit_code: int | None = None
    """Of an Ended worker's agent, where known."""
    holds_room: bool = False
    """It has Ended, and holds its GPUs all the same: other containers of its pod run on."""
    container_failure: str = ""
    """Which of its containers, other than the one that trains, has ended with another exit code
    than 0, for people; "" where none has."""
    loss: WorkerLoss | None = None
    """Set when the world knows that the worker or its node is gone, whatever its phase."""
    pending: Pending | None = None
    """Why a Pending worker has not started, where the world knows."""
    suspect_node: str = ""
    """Why its node is suspected (NotReady, lease not renewed), "" while it is not. A worker there
    that is silent is lost with its node; one that still answers is not lost."""
    notice: Notice | None = None
    """The world was told that the worker will be taken away."""
    agent: AgentState | None = None
    """The last heartbeat; None: never heard (by this operator)."""
    silent_for: timedelta
    """Since the last heartbeat, or since this operator began to listen if it never heard one."""
    unreadable: str = ""
    """Why what its agent says now cannot be read: it lives, and `agent` is what it said before."""

    @property
    def ran_for(self) -> timedelta:
        """Since it was seen to run, or since its creation where that is the same."""
        return self.age if self.running_for is None else self.running_for

    @property
    def is_in_the_way(self) -> bool:
        """It takes room that others may need."""
        return self.phase != "Ended" or self.holds_room


RefusedReason = Literal["Invalid", "Forbidden", "QuotaExceeded", "NameTaken", "Unavailable"]
"""Worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The creation of a worker that the world has refused lately and not carried out since."""

    slot: int
    name: str
    """Of the worker."""
    reason: RefusedReason
    message: str
    """What the API server said."""
    since: timedelta
    """Since the first refusal of this creation."""


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
    ordered: int = 0
    """The highest attempt that this operator has told an agent to start: one that has not told of
    its start may compute by now, whatever the status says."""
    last_words: tuple[AgentState, ...] = ()
    """Of each slot the last heartbeat of the newest agent whose worker is not there any more."""
    problems: tuple[Problem, ...] = ()
    """What hinders the operator itself."""
    ready_since: Mapping[str, datetime] = field(default_factory=dict)
    """Of nodes that incidents of the status name: since when they are Ready, those that are."""
    strikes: tuple[NodeStrike, ...] = ()
    """What the statuses of the runs of its namespace, of its own or not, tell against nodes."""
    installation: Installation = NAMELESS
    """The one that this operator belongs to."""
    refused: tuple[Refused, ...] = ()
    """Creations that were refused; the world itself backs off (1 s, twice as long each time, at
    most 60 s), so the core may ask for them in every pass."""
    too_large: str = ""
    """Why the newest version of the object was not read, and `config` is of one before."""
    invalid: str = ""
    """Why the newest spec cannot be used, where it was read; `config` is of the one before."""


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
