"""Parts of a TrainRun's status: incidents, open requests, learned times, counts and progress.

Layer: api. `core/run/display.py` makes most of the texts that people read.
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
    """A part of the status: camelCase outside; unknown fields of a newer operator are skipped."""

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
        """Write the fields' docstrings into the schema."""
        return cls.described(handler(schema), handler)

    @classmethod
    def described(cls, schema: JsonSchemaValue, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema with the fields' docstrings."""
        names = {name: to_camel(name) for name in getattr(cls, "__dataclass_fields__", {})}
        return describe(cls, names, schema, handler)


def as_json(adapter: TypeAdapter[P], part: P) -> dict[str, Any]:
    """The part as JSON for the custom resource: camelCase, absent instead of null."""
    written: dict[str, Any] = adapter.dump_python(
        part, mode="json", by_alias=True, exclude_none=True
    )
    return written


def _possible(checkpoint: CheckpointId) -> CheckpointId:
    if checkpoint.step < 0 or checkpoint.attempt < 1:
        raise ValueError("a checkpoint's step must be at least 0 and its attempt at least 1")
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
"""A checkpoint handed to an attempt: the contract's pair, with the resource's bounds."""

BudgetName = Literal["failures", "preemptions", "startFailures", "none"]
Gain = Literal["Some", "None", "Unknown"]
EndingKind = Literal[
    "Incident", "Suspend", "TemplateChange", "Yielded", "TakenOver", "Reopened", "Restart"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident(StatusPart):
    """The losses of one attempt, with the cause that explains them best."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that it ended."""
    cause: Annotated[str, Field(max_length=64)]
    """AppError, OutOfMemory, Preempted, NodeLost, StartFailed, ... (docs/failure-model.md)."""
    budget: BudgetName = "failures"
    """The budget it is charged to; provisional until it is settled."""
    counted: bool = False
    """Whether it was charged to its budget; set when it is settled, and never taken back."""
    slot: int | None = None
    """The culprit's slot."""
    rank: int | None = None
    """The culprit's rank, if the culprit is one process."""
    worker: Annotated[str, Field(max_length=253)] = ""
    """The culprit's worker (pod) name."""
    node: Annotated[str, Field(max_length=253)] = ""
    """The node that the culprit was on."""
    exit_code: int | None = None
    """Exit code of the culprit; 128 + the signal's number if a signal ended it."""
    container: Annotated[str, Field(max_length=63, exclude_if=not_)] = ""
    """The container in which the culprit ended, if one did."""
    exception: Annotated[tuple[str, ...], Field(max_length=16, exclude_if=not_)] = ()
    """The class of the exception that ended the culprit, and its base classes; for older incidents
    only the class."""
    raised_at: Annotated[str, Field(max_length=120, exclude_if=not_)] = ""
    """Where the exception was raised, such as `loss.py:88`."""
    step: int | None = None
    """The highest step that the attempt had reported."""
    template: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Hash of the pod template of its workers."""
    known_by: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """The evidence for the cause."""
    rule: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """The rule of failurePolicy that decided."""
    action: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """What this rule, or the script, asked for; absent: the budget of its cause decides."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """What happened, for people: signal, exception, or the node's condition."""
    last_lines: Annotated[tuple[str, ...], Field(max_length=20, exclude_if=not_)] = ()
    """The culprit's last lines of output; absent if there are none."""
    hang: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """For a hang, where the ranks hung: OneRankAway, SameCollective, WaitingForInput or Unknown."""
    evidence: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """The folder in the run's folder with the stacks of all ranks, if they were collected."""
    collateral: bool = False
    """So far only consequences of a loss elsewhere were seen, such as broken collectives."""
    time: datetime
    """When it was first seen."""
    detect_seconds: float | None = None
    """Seconds from the loss until the operator detected it."""
    recovery_seconds: float | None = None
    """Seconds from the detection until the next attempt reported its first step."""
    restart_seconds: float | None = None
    """Seconds from the detection until the next attempt was started."""
    stages: Annotated[dict[str, float], Field(exclude_if=not_)] = field(default_factory=dict)
    """For the last incident, the seconds of each part of its recovery, in order: detect, decide,
    stop, flush, pods, start, import, rendezvous, load, script, firstStep. They sum to detectSeconds
    and recoverySeconds; a part that took no time is absent."""
    warm: Annotated[int, Field(exclude_if=not_)] = 0
    """Processes of the next attempt that started from a standby interpreter."""
    cold: Annotated[str, Field(max_length=300, exclude_if=not_)] = ""
    """For the last incident, if workers.warmStart keeps standbys: why a process of the next attempt
    started without one. Absent if all started from standbys."""
    lost_steps: int | None = None
    """Steps of the attempt beyond the checkpoint that the next one resumed from, as far as they
    were reported; absent if unknown."""
    resumed_from: HandedCheckpoint | None = None
    """The checkpoint that the next attempt resumed from."""
    opened: HandedCheckpoint | None = None
    """The checkpoint with which the attempt died, soon after it had asked for it and before a first
    step; absent: it did not."""
    trial_of: HandedCheckpoint | None = None
    """The newer checkpoint that the attempt skipped as a trial; absent: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(StatusPart):
    """Attempt `attempt` is given up: its processes stop and the next attempt is prepared."""

    attempt: Annotated[int, Field(ge=0)]
    """The attempt that ends."""
    kind: EndingKind
    """Why; only an Incident is charged to a budget."""
    time: datetime
    """When this was decided."""
    grace_until: datetime | None = None
    """Its processes get SIGTERM, and are killed at this time; absent: they are killed at once."""
    flush: Annotated[tuple[int, ...], Field(max_length=64)] = ()
    """Staged steps whose uploads finish first."""
    in_place: Annotated[bool, Field(exclude_if=not_)] = False
    """They are not uploaded first: the next attempt starts from the workers' disks."""
    flush_until: datetime | None = None
    """When their uploads are given up; absent: after checkpoint.flushTimeout."""
    not_before: datetime | None = None
    """Backoff: the next attempt starts at this time at the earliest."""
    gain: Annotated[Gain, Field(exclude_if=lambda gain: gain == "Unknown")] = "Unknown"
    """What the attempt gained. Some: a step above any before or, if none was ever reported, a
    minute of training. None: nothing. Absent: unknown."""
    dismissed: Annotated[str, Field(max_length=256, exclude_if=not_)] = ""
    """Slots of the roster whose workers the operator deletes, as the bits of a hexadecimal number
    (256 characters for 1,024 slots): the end of such a worker explains no incident."""

    def has_dismissed(self, slot: int) -> bool:
        """Whether the operator deletes the worker of this slot."""
        return bool(int(self.dismissed or "0", 16) >> slot & 1)

    def dismissing(self, slots: Iterable[int]) -> str:
        """`dismissed` with these slots added."""
        return f"{sum(1 << slot for slot in set(slots)) | int(self.dismissed or '0', 16):x}"


MAX_LEAVING = 64
"""Slots under notice that the status keeps: if there are more, these suffice to know the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAsked(StatusPart):
    """The running attempt was asked to save a checkpoint through `should_save()`."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that was asked."""
    reason: Annotated[str, Field(max_length=256)]
    """Preemption notice, suspend, template change."""
    time: datetime
    """When it was first asked."""
    writer_rank: Annotated[int, Field(ge=0)] = 0
    """The lowest rank not under notice at that moment: every rank gets the same number."""
    leaving: Annotated[tuple[int, ...], Field(max_length=MAX_LEAVING)] = ()
    """Slots under notice since then: if their worker is gone later, it was preempted, even if its
    end was not observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWait(StatusPart):
    """The store does not answer, or refuses, what an attempt needs to start."""

    reason: Annotated[str, Field(max_length=64)]
    """The reason of the condition StorageReady."""
    since: datetime | None = None
    """When the requests began, without a break since; absent: no worker asks the store now."""
    waited: float = 0.0
    """Seconds of waiting before `since`."""
    renewals: Annotated[int, Field(exclude_if=not_)] = 0
    """How often the workers that the store refuses were replaced."""
    renewed: datetime | None = None
    """When they were last replaced."""
    renewed_to: Annotated[int, Field(exclude_if=not_)] = 0
    """The highest creation among the replaced workers: those up to it are deleted if the store
    still refuses them."""
    spec: Annotated[str, Field(max_length=64)] = ""
    """Hash of the fields of the spec that define how workers reach the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceAsked(StatusPart):
    """The running attempt makes no progress, and its agents were asked for stacks."""

    attempt: Annotated[int, Field(ge=1)]
    """The attempt that was asked."""
    number: Annotated[int, Field(ge=1)]
    """Number of the request within the attempt."""
    time: datetime
    """When it was asked; the operator waits at most ten seconds for answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned(StatusPart):
    """What the ended attempts show about the steps of the run."""

    slowest: float = 0.0
    """Seconds of the slowest step, without the first step of an attempt and the time before it."""
    trained: float = 0.0
    """Seconds between the first and the last step of an attempt, summed over all attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures(StatusPart):
    """Budgets used so far; the numbers never go down."""

    counted: int = 0
    """Settled incidents charged to failurePolicy.maxFailures."""
    preemptions: int = 0
    """Settled incidents charged to failurePolicy.maxPreemptions."""
    start_failures: Annotated[int, Field(exclude_if=not_)] = 0
    """Settled incidents charged to failurePolicy.maxStartFailures; absent if there are none."""
    limit: int = 0
    """failurePolicy.maxFailures, -1 for no limit."""
    text: Annotated[str, Field(max_length=32)] = ""
    """`1/3`: failures and their limit, an incident that is not settled yet included."""


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
    """`433Mi`: the memory of the largest standby interpreter, if workers.warmStart keeps them and
    one has been ready."""
    leaving: Annotated[int, Field(exclude_if=not_)] = 0
    """Workers of a finished run that may still store its last metrics, lines and `finished.json`.
    Absent once all have ended or are silent."""


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
    """Seconds that `report(checkpoint=)` waited for uploads of earlier checkpoints, in the attempt
    of this step, on the rank that waited longest."""
    staged: int | None = None
    """With checkpoint.uploadEvery: the newest step that every worker has on its disk, if it is not
    committed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedProgress(StatusPart):
    """How far the training is, as posted by its framework; a Hugging Face Trainer posts by itself.

    Only for people: no decision reads it."""

    text: Annotated[str, Field(max_length=64)] = ""
    """`1200/5000`, or `24 %` from a framework that posts no steps."""
    step: int | None = None
    """The current step."""
    total_steps: int | None = None
    """The step at which the training ends."""
    percent: int | None = None
    """How much of the training is done."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Metrics of the newest post; a number that is not finite is {"float": "NaN"}."""
    remaining_seconds: int | None = None
    """Seconds from `time` until it ends, at the pace of this attempt so far."""
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
