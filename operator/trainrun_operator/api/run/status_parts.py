"""Parts of a TrainRun's status: incidents, what was asked and learned, and how the run stands.

Layer: api. What people read of them `core/run/display.py` makes, most of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import not_
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.base import describe

P = TypeVar("P")


class StatusPart:
    """A part of the status: camelCase outside; what only a newer operator knows is skipped."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Write what stands below the fields into the schema."""
        return cls.described(handler(schema), handler)

    @classmethod
    def described(cls, schema: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema with what stands below the fields."""
        names = {name: to_camel(name) for name in getattr(cls, "__dataclass_fields__", {})}
        return describe(cls, names, schema, handler)


def as_json(adapter: TypeAdapter[P], part: P) -> dict[str, Any]:
    """As it stands in the custom resource: camelCase, absent instead of null."""
    written: dict[str, Any] = adapter.dump_python(
        part, mode="json", by_alias=True, exclude_none=True
    )
    return written


def _possible(checkpoint: CheckpointId) -> CheckpointId:
    if checkpoint.step < 0 or checkpoint.attempt < 1:
        raise ValueError("a checkpoint has a step from 0 and an attempt from 1")
    return checkpoint


class Cause(StrEnum):
    """Why an attempt ended early; the same words in status, events, metrics and docs."""

    PREEMPTED = "Preempted"
    EVICTED = "Evicted"
    NODE_LOST = "NodeLost"
    TERMINATED = "Terminated"
    OUT_OF_MEMORY = "OutOfMemory"
    FATAL_ERROR = "FatalError"
    RETRY_ERROR = "RetryError"
    APP_ERROR = "AppError"
    ENDED_EARLY = "EndedEarly"
    START_FAILED = "StartFailed"
    RENDEZVOUS_FAILED = "RendezvousFailed"
    STORAGE_ERROR = "StorageError"
    STORAGE_REFUSED = "StorageRefused"
    CHECKPOINT_DAMAGED = "CheckpointDamaged"
    MISREAD = "Misread"
    INTERRUPTED = "Interrupted"
    SILENT = "Silent"
    HUNG = "Hung"
    UNKNOWN = "Unknown"


HandedCheckpoint = Annotated[
    CheckpointId,
    AfterValidator(_possible),
    WithJsonSchema(
        {
            "type": "object",
            "required": ["step", "attempt"],
            "properties": {
                "step": {"type": "integer", "minimum": 0, "description": "Its step."},
                "attempt": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "The attempt that saved it.",
                },
            },
        }
    ),
]
"""A checkpoint handed to an attempt: the contract's pair, with what the resource says of it."""

BudgetName = Literal["failures", "preemptions", "startFailures", "none"]
Gain = Literal["Some", "None", "Unknown"]
EndingKind = Literal[
    "Incident", "Suspend", "TemplateChange", "Yielded", "TakenOver", "Reopened", "Restart"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident(StatusPart):
    """A loss of one or more workers of one attempt, with the cause that explains it best."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that it ended."""
    cause: Annotated[str, Field(max_length=64)]
    """AppError, OutOfMemory, Preempted, NodeLost, StartFailed, ... (docs/failure-model.md)."""
    budget: BudgetName = "failures"
    """The budget it is charged to; provisional until it is settled."""
    counted: bool = False
    """Charged to its budget: true once, when it is settled, and then for ever."""
    slot: int | None = None
    """The culprit's slot."""
    rank: int | None = None
    """The culprit's rank, where one process is the culprit."""
    worker: Annotated[str, Field(max_length=253)] = ""
    """The culprit's worker (pod) name."""
    node: Annotated[str, Field(max_length=253)] = ""
    """The node it was on."""
    exit_code: int | None = None
    """Exit code of the culprit; 128 + number when a signal ended it."""
    container: Annotated[str, Field(max_length=63, exclude_if=not_)] = ""
    """The container in which the culprit ended, where one did."""
    exception: Annotated[tuple[str, ...], Field(max_length=16, exclude_if=not_)] = ()
    """The class of the exception that ended the culprit, and the bases of it; of older incidents
    the class alone."""
    raised_at: Annotated[str, Field(max_length=120, exclude_if=not_)] = ""
    """`loss.py:88`, where it was raised."""
    step: int | None = None
    """The highest step that its attempt had reported."""
    template: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Hash of the pod template of its workers."""
    known_by: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """Why it was possible to know."""
    rule: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """The rule of failurePolicy that decided."""
    action: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """What this rule, or the script, asked for; absent: the budget of its cause decides."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """What happened, for a person: signal, exception, or the node's condition."""
    last_lines: Annotated[tuple[str, ...], Field(max_length=20, exclude_if=not_)] = ()
    """The culprit's last lines of output; absent where there are none."""
    hang: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """Of a hang, where its ranks stood: OneRankAway, SameCollective, WaitingForInput or Unknown."""
    evidence: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """The folder within the run's with the stacks of all ranks, where they were asked for."""
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
    stages: Annotated[dict[str, float], Field(exclude_if=not_)] = field(default_factory=dict)
    """Of the last incident, the seconds of the parts of its recovery, in their order: detect,
    decide, stop, flush, pods, start, import, rendezvous, load, script, firstStep. They sum to
    detectSeconds and recoverySeconds; a part that took no time is absent."""
    warm: Annotated[int, Field(exclude_if=not_)] = 0
    """Processes of the next attempt that a standby interpreter became."""
    cold: Annotated[str, Field(max_length=300, exclude_if=not_)] = ""
    """Of the last incident, where workers.warmStart keeps standbys: why a process of the next
    attempt began without one. Absent where all began warm."""
    lost_steps: int | None = None
    """Steps done by the attempt beyond the checkpoint that the next one resumed from, as far as the
    operator has heard of them; absent where it cannot know."""
    resumed_from: HandedCheckpoint | None = None
    """The checkpoint that the next attempt resumed from."""
    opened: HandedCheckpoint | None = None
    """The checkpoint with which its attempt died before a first step, soon after it had asked for
    it; absent: it did not."""
    trial_of: HandedCheckpoint | None = None
    """The newer checkpoint which its attempt tried to do without; absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(StatusPart):
    """Attempt `attempt` is given up: its processes are stopped and the next one is prepared."""

    attempt: Annotated[int, Field(ge=0)]
    """The attempt that ends."""
    kind: EndingKind
    """Why; only an Incident is charged to a budget."""
    time: datetime
    """When this was decided."""
    grace_until: datetime | None = None
    """Its processes get SIGTERM and are killed then; absent: they are killed at once."""
    flush: Annotated[tuple[int, ...], Field(max_length=64)] = ()
    """Staged steps whose uploads are finished first."""
    flush_until: datetime | None = None
    """When they are given up; absent: after checkpoint.flushTimeout."""
    not_before: datetime | None = None
    """Backoff: the next attempt does not start earlier."""
    gain: Annotated[Gain, Field(exclude_if=lambda gain: gain == "Unknown")] = "Unknown"
    """What the attempt has gained: a step above any before or, where none was ever reported, a
    minute of training; None: nothing. Absent: nobody knows."""
    dismissed: Annotated[str, Field(max_length=256, exclude_if=not_)] = ""
    """Slots of the roster whose workers the operator deletes, as the bits of a hexadecimal number
    (of 1,024 slots in 256 characters): what becomes of them explains no incident."""

    def has_dismissed(self, slot: int) -> bool:
        """The operator deletes the worker of this slot."""
        return bool(int(self.dismissed or "0", 16) >> slot & 1)

    def dismissing(self, slots: Iterable[int]) -> str:
        """`dismissed`, with these slots."""
        return f"{sum(1 << slot for slot in set(slots)) | int(self.dismissed or '0', 16):x}"


MAX_LEAVING = 64
"""Slots under notice that are remembered: of more than that, enough are seen to know the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAsked(StatusPart):
    """The running attempt was asked to save a checkpoint through `should_save()`."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that was asked."""
    reason: Annotated[str, Field(max_length=256)]
    """Preemption notice, suspend, template change."""
    time: datetime
    """When it was asked first."""
    writer_rank: Annotated[int, Field(ge=0)] = 0
    """The lowest rank not under notice at that moment: the same on every rank, whoever is told."""
    leaving: Annotated[tuple[int, ...], Field(max_length=MAX_LEAVING)] = ()
    """Slots under notice since then: a worker of them that is gone later was preempted, also when
    nobody saw it end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWait(StatusPart):
    """The store is asked in vain for what an attempt needs to start."""

    reason: Annotated[str, Field(max_length=64)]
    """That of the condition StorageReady."""
    since: datetime | None = None
    """Since when it has been asked without a break; absent: nobody asks it now."""
    waited: float = 0.0
    """Seconds for which it had been asked before that."""
    renewals: Annotated[int, Field(exclude_if=not_)] = 0
    """How often the workers that it refuses were made anew."""
    renewed: datetime | None = None
    """When they were last."""
    renewed_to: Annotated[int, Field(exclude_if=not_)] = 0
    """The highest number of creation among them: those up to it go, where it refuses them still."""
    spec: Annotated[str, Field(max_length=64)] = ""
    """Hash of the fields of the spec that say how workers reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceAsked(StatusPart):
    """The running attempt stands still, and its agents were asked where."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that was asked."""
    number: Annotated[int, Field(ge=1)]
    """Of the request, within the attempt."""
    time: datetime
    """When it was asked: nobody is waited for longer than ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned(StatusPart):
    """What the attempts that have ended have taught about the steps of the run."""

    slowest: float = 0.0
    """Seconds that a step took at most; the first one of an attempt, and what came before it, not
    counted."""
    trained: float = 0.0
    """Seconds between the first and the last step of each attempt, all of them together."""


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
