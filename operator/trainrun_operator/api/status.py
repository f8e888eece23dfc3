"""The status of a TrainRun: what the operator remembers and what its users read.

Layer: api. The core reads and returns these models; whatever the core must remember between two
passes stands here and nowhere else, so an operator that restarts with nothing but the status goes
on where the one before stopped.
"""

from __future__ import annotations

from datetime import datetime
from operator import not_
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field

from trainrun_operator.api.base import Model

IDENTITY_LENGTH = 4
"""Characters of an agent's random identity kept in the start record: 1,024 of them are 4 KB."""

MAX_LEAVING = 64
"""Slots under notice that are remembered: of more than that, enough are seen to know the cause."""

MAX_INCIDENTS = 10
"""Settled incidents kept in the status (etcd objects should stay small)."""

PhaseName = Literal[
    "Pending",
    "Starting",
    "Running",
    "Preempting",
    "Restarting",
    "Finishing",
    "Suspended",
    "Succeeded",
    "Failed",
]
"""What a person reads; derived from facts in every pass, never read back."""

BudgetName = Literal["failures", "preemptions", "none"]
EndingKind = Literal["Incident", "Suspend", "TemplateChange", "Yielded"]
ConditionStatus = Literal["True", "False", "Unknown"]


def _known(value: object) -> object:
    return value if value in get_args(PhaseName) else "Pending"


class StatusModel(Model):
    """A part of the status: what only a newer operator knows is skipped when it is read."""

    model_config = ConfigDict(extra="ignore")


class ResumePoint(StatusModel):
    """A checkpoint handed to an attempt."""

    step: int = Field(ge=0)
    """Its step."""
    attempt: int = Field(ge=1)
    """The attempt that saved it."""


class StartRecord(StatusModel):
    """What attempt `attempt` was started with; written once, before its first start order."""

    attempt: int = Field(ge=1)
    """Number of the attempt."""
    roster: tuple[int, ...] = Field(max_length=1024)
    """For each slot, the number of creation of its worker (`<run>-<slot>-<creation>`)."""
    agents: str = Field(max_length=1024 * IDENTITY_LENGTH)
    """For each slot, the first four characters of its agent's random identity, one after the other:
    a worker that somebody recreated under the same name is not the one that was started."""
    world_size: int = Field(ge=1)
    """Processes over all workers."""
    resume_point: ResumePoint | None = None
    """The checkpoint handed to every rank; absent: the attempt starts from nothing."""
    master_addr: str = Field(max_length=253)
    """MASTER_ADDR, offered by slot 0's agent."""
    master_port: int = Field(ge=1, le=65535)
    """MASTER_PORT, offered by slot 0's agent."""
    template_hash: str = Field(max_length=64)
    """Hash of the pod template that every worker of the roster was made from."""
    time: datetime
    """When the attempt was started."""

    def identity(self, slot: int) -> str:
        """The beginning of the identity of the slot's agent."""
        return self.agents[slot * IDENTITY_LENGTH : (slot + 1) * IDENTITY_LENGTH].rstrip()


class Incident(StatusModel):
    """A loss of one or more workers of one attempt, with the cause that explains it best."""

    attempt: int = Field(ge=1)
    """The attempt that it ended."""
    cause: str = Field(max_length=64)
    """AppError, OutOfMemory, Preempted, NodeLost, StartFailed, ... (docs/failure-model.md)."""
    budget: BudgetName = "failures"
    """The budget it is charged to; provisional until it is settled."""
    counted: bool = False
    """Charged to its budget: true once, when it is settled, and then for ever."""
    slot: int | None = None
    """The culprit's slot."""
    rank: int | None = None
    """The culprit's rank, where one process is the culprit."""
    worker: str = Field(default="", max_length=253)
    """The culprit's worker (pod) name."""
    node: str = Field(default="", max_length=253)
    """The node it was on."""
    exit_code: int | None = None
    """Exit code of the culprit; 128 + number when a signal ended it."""
    message: str = Field(default="", max_length=1024)
    """What happened, for a person: signal, exception, or the node's condition."""
    last_lines: tuple[str, ...] = Field(default=(), max_length=20, exclude_if=not_)
    """The culprit's last lines of output; absent where there are none."""
    collateral: bool = False
    """Only consequences of a loss elsewhere have been seen so far (broken collectives)."""
    time: datetime
    """When it was first seen."""
    detect_seconds: float | None = None
    """Seconds from the loss until the operator knew."""
    recovery_seconds: float | None = None
    """Seconds from knowing until the next attempt reported its first step."""
    restart_seconds: float | None = None
    """Seconds from knowing until the next attempt was started."""
    lost_steps: int | None = None
    """Steps done by the attempt beyond the checkpoint that the next one resumed from."""
    resumed_from: ResumePoint | None = None
    """The checkpoint that the next attempt resumed from."""


class Ending(StatusModel):
    """Attempt `attempt` is given up: its processes are stopped and the next one is prepared."""

    attempt: int = Field(ge=0)
    """The attempt that ends."""
    kind: EndingKind
    """Why; only an Incident is charged to a budget."""
    time: datetime
    """When this was decided."""
    flush: tuple[int, ...] = Field(default=(), max_length=64)
    """Staged steps whose uploads are finished first, at most checkpoint.flushTimeout long."""
    not_before: datetime | None = None
    """Backoff: the next attempt does not start earlier."""


class SaveAsked(StatusModel):
    """The running attempt was asked to save a checkpoint through `should_save()`."""

    attempt: int = Field(ge=1)
    """The attempt that was asked."""
    reason: str = Field(max_length=256)
    """Preemption notice, suspend, template change."""
    time: datetime
    """When it was asked first."""
    writer_rank: int = Field(default=0, ge=0)
    """The lowest rank not under notice at that moment: the same on every rank, whoever is told."""
    leaving: tuple[int, ...] = Field(default=(), max_length=MAX_LEAVING)
    """Slots under notice since then: a worker of them that is gone later was preempted, also when
    nobody saw it end."""


class Placement(StatusModel):
    """The gang was given back because there was room for a part of it only."""

    tries: int = Field(ge=1)
    """How often in a row."""
    not_before: datetime
    """Its workers are not created again earlier."""


class Failures(StatusModel):
    """Budgets used so far; the numbers never go down."""

    counted: int = 0
    """Settled incidents charged to failurePolicy.maxFailures."""
    preemptions: int = 0
    """Settled incidents charged to failurePolicy.maxPreemptions."""
    limit: int = 0
    """failurePolicy.maxFailures, -1 for no limit."""
    text: str = Field(default="", max_length=32)
    """`1/3`: failures against the limit, an incident that is not settled yet included."""


class Workers(StatusModel):
    """How many workers take part."""

    ready: int = 0
    """Workers whose agent answers."""
    total: int = 0
    """spec.workers.replicas."""
    text: str = Field(default="", max_length=32)
    """`4/4`."""


class Progress(StatusModel):
    """How far the training is."""

    step: int | None = None
    """The highest step that rank 0's worker reported in this attempt."""
    metrics: dict[str, Any] = Field(default_factory=dict)
    """Metrics of that report; a number that is not finite is {"float": "NaN"}."""
    time: datetime | None = None
    """When the step was first seen."""
    stall_seconds: int = 0
    """Seconds that `report(checkpoint=)` had waited because earlier checkpoints were still being
    uploaded, in the attempt of this step and on the rank where it is most."""


class CheckpointStatus(StatusModel):
    """The newest committed checkpoint known to the operator."""

    uri: str = Field(max_length=2048)
    """Its folder in the store."""
    step: int
    """Its step."""
    attempt: int
    """The attempt that saved it."""
    time: datetime
    """When it was committed."""
    size_bytes: int = 0
    """Bytes of all its files."""


class Condition(StatusModel):
    """A Kubernetes condition."""

    type: str = Field(max_length=64)
    """Complete, Failed, Suspended, Running, TemplateValid, StorageReady, or a worker's warning."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: str = Field(max_length=64)
    """CamelCase, for machines."""
    message: str = Field(default="", max_length=2048)
    """For people: what it means and what to do."""
    last_transition_time: datetime
    """When status or reason last changed."""
    observed_generation: int = 0
    """metadata.generation that this was derived from."""


class TrainRunStatus(StatusModel):
    """status of a TrainRun."""

    observed_generation: int = 0
    """metadata.generation of the spec that was acted on last."""
    phase: Annotated[PhaseName, BeforeValidator(_known)] = "Pending"
    """One word for people: how far the run is in its life."""
    reason: str = Field(default="", max_length=64)
    """One word for people: what it waits for or why it ended; absent while it runs."""
    conditions: tuple[Condition, ...] = Field(default=(), max_length=32)
    """Complete, Failed, Suspended, Running, WorkersReady, TemplateValid, StorageReady and
    warnings."""
    attempt: int = 0
    """Highest attempt number used so far; only grows."""
    start_record: StartRecord | None = None
    """What the newest attempt was started with."""
    ending: Ending | None = None
    """Set from the moment the newest attempt is given up until the next one starts."""
    save_asked: SaveAsked | None = None
    """Set while the running attempt is asked to save."""
    placement: Placement | None = None
    """Set from the moment the pods are given back for lack of room until an attempt starts."""
    incident: Incident | None = None
    """The incident of the newest attempt, until it is settled."""
    incidents: tuple[Incident, ...] = Field(default=(), max_length=MAX_INCIDENTS)
    """The last settled incidents, oldest first."""
    restarts: int = 0
    """Attempts started after the first one, whatever for."""
    fruitless: int = 0
    """Attempts in a row that ended without a new step: the backoff grows with it."""
    failures: Failures = Failures()
    """Budgets."""
    workers: Workers = Workers()
    """Workers that answer."""
    progress: Progress = Progress()
    """Step and metrics."""
    checkpoint: CheckpointStatus | None = None
    """Newest committed checkpoint."""
    start_time: datetime | None = None
    """When the operator first saw the run, or when it was last resumed from suspension."""
    completion_time: datetime | None = None
    """When it succeeded or failed."""

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, if there is one."""
        return next((c for c in self.conditions if c.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Whether the condition of this type is there and True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def finished(self) -> bool:
        """Succeeded or Failed: a verdict that nothing takes back."""
        return self.is_true("Complete") or self.is_true("Failed")
