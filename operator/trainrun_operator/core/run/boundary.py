"""The interface between a world and the core: what a decision is based on, and what it returns.

Layer: core. Facts are frozen values, gathered by a world; the order of `workers` has no meaning.
Everything unknown is None: an operator that has just started knows no agent's state, and that is
not a failure. An installation of the operator has a name, by which a status says who leads a run.

A plan is a status to write first, or else actions and answers for agents. A plan with `transition`
contains nothing else to do: its status must be written (under a precondition) before the next pass
acts on it. Answers are derived from the *written* status, so every operator that reads the same
status gives the same answers.
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
    """The namespace that it runs in: at most one in each."""
    key: str = ""
    """Identifies the key by which it recognises its own workers. An installation that has lost its
    key recognises none of them, nor do they recognise it."""
    adopts: frozenset[str] = frozenset()
    """Names of installations that are gone, whose runs it takes over."""

    @property
    def holder(self) -> str:
        """Its name in a status; empty: nameless."""
        return f"{self.name}/{self.key}" if self.name else ""

    def may_lead(self, holder: str) -> bool:
        """Whether a run with this holder is its own, or becomes it."""
        return not holder or name_of(holder) in {self.name, *self.adopts}


NAMELESS = Installation()
"""On one machine, where there is no other installation."""


def name_of(holder: str) -> str:
    """The namespace of the holder's installation."""
    return holder.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLoss:
    """What the world itself knows about the end of a worker or about its node."""

    cause: Cause
    message: str
    age: timedelta = timedelta(0)
    """How long ago the world learned it."""
    container: str = ""
    """The container that ended, if it is the end of one."""
    exit_code: int | None = None
    """Of that container, if its end explains everything."""
    unreachable: bool = False
    """Its node cannot be reached, so no kubelet can end it: it is deleted by force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStrike:
    """An incident that counts against the node it began on."""

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
    """Unschedulable: there is no room; SchedulingGated: the scheduler does not look for room yet;
    ImagePull: an image cannot be pulled; ConfigError: a secret, config map or volume is missing;
    Starting: placed, and being started."""
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
    """Number of its creation; the slot and this number make the name."""
    template_hash: str
    storage: StorageConfig | None = None
    """The storage that its agent is configured for; None: unknown."""
    phase: WorkerPhase
    """Pending: not placed or not started; Ended: it will never run again."""
    deleting: bool = False
    node: str = ""
    avoids: tuple[str, ...] = ()
    """Names of nodes that it may not be placed on; fixed at its creation."""
    age: timedelta = timedelta(0)
    """Since its creation."""
    running_for: timedelta | None = None
    """Since it was first seen running; None where the world starts workers at their creation."""
    exit_code: int | None = None
    """Of an Ended worker's agent, where known."""
    holds_room: bool = False
    """It has Ended, but still holds its GPUs: other containers of its pod continue to run."""
    container_failure: str = ""
    """The container, other than the one that trains, that ended with another exit code than 0; for
    people. "": none."""
    loss: WorkerLoss | None = None
    """Set when the world knows that the worker or its node is gone, whatever its phase."""
    pending: Pending | None = None
    """Why a Pending worker has not started, where the world knows."""
    suspect_node: str = ""
    """Why its node is suspected (NotReady, lease not renewed); "" while it is not. A silent worker
    there is lost with its node; a worker that still answers is not lost."""
    notice: Notice | None = None
    """The world has received a notice that the worker will be taken away."""
    agent: AgentState | None = None
    """The last heartbeat; None: this operator has received none."""
    silent_for: timedelta
    """Since the last heartbeat; without one, since this operator began to listen."""
    unreadable: str = ""
    """Why its newest heartbeat cannot be read: it is alive, and `agent` is its last readable state.
    "": it can be read."""

    @property
    def ran_for(self) -> timedelta:
        """Since it was first seen running, or since its creation where that is the same."""
        return self.age if self.running_for is None else self.running_for

    @property
    def is_in_the_way(self) -> bool:
        """It holds room that other workers may need."""
        return self.phase != "Ended" or self.holds_room


RefusedReason = Literal["Invalid", "Forbidden", "QuotaExceeded", "NameTaken", "Unavailable"]
"""Worst first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The creation of a worker that the world has recently refused and not carried out since."""

    slot: int
    name: str
    """Of the worker."""
    reason: RefusedReason
    message: str
    """The message of the API server."""
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
    """How long this operator has been able to receive heartbeats without interruption: silence is
    judged only when this is longer than the heartbeat timeout."""
    ordered: int = 0
    """The highest attempt that this operator has ordered an agent to start. Even without a report
    of its start it may already be computing, whatever the status says."""
    last_words: tuple[AgentState, ...] = ()
    """By slot, the last heartbeat of the newest agent whose worker no longer exists."""
    problems: tuple[Problem, ...] = ()
    """Problems of the operator itself."""
    ready_since: Mapping[str, datetime] = field(default_factory=dict)
    """Since when nodes that incidents of the status name have been Ready, if they are."""
    strikes: tuple[NodeStrike, ...] = ()
    """Incidents against nodes, from the statuses of all runs of its namespace, also of other
    installations."""
    installation: Installation = NAMELESS
    """The installation of this operator."""
    refused: tuple[Refused, ...] = ()
    """Refused creations. The world itself backs off (1 s, doubled each time, at most 60 s), so the
    core may ask for them in every pass."""
    too_large: str = ""
    """Why the newest version of the object was not read; `config` is of an earlier one."""
    invalid: str = ""
    """Why the newest spec was read but cannot be used; `config` is of the previous one."""


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
    """Names of nodes that it should rather not be placed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWorker:
    """Delete a worker; what still runs there is fenced by the attempt number."""

    name: str
    reason: str
    force: bool = False
    """Without grace, and without waiting for a node that cannot confirm it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRun:
    """Delete the TrainRun itself: ttlAfterFinished has passed."""


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
    """CamelCase: the decision."""
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
    continues what it is doing."""
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None
    """Decide again after this time, even if nothing happens."""
