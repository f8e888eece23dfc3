"""The status of a TrainRun: what the operator remembers and what users read; and its JSON.

Layer: api; the only place where a status is validated. Everything that the core must remember
between two passes is here and nowhere else, so an operator that restarts with only the status
continues where the previous one stopped.

Plain frozen dataclasses: the core changes one with `dataclasses.replace`, whose arguments mypy
checks, without the cost of validation. The annotations check what is read and written, and so does
the CRD, which is made from the same classes. In JSON: absent instead of null, camelCase; fields
that only the operator reads (`Internal`) are in an object of their own there, but in Python they
are fields of the status like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from operator import not_
from typing import Annotated, Any, Literal

from pydantic import Field, GetJsonSchemaHandler, TypeAdapter
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from trainrun.contract.metrics import OF_TASKS
from trainrun_operator.api.base import MapList
from trainrun_operator.api.run.output import OutputSteps
from trainrun_operator.api.run.status_parts import (
    CheckpointStatus,
    Ending,
    EvidenceAsked,
    Failures,
    HandedCheckpoint,
    Incident,
    Learned,
    PostedProgress,
    Progress,
    SaveAsked,
    StatusPart,
    StoreWait,
    Workers,
    as_json,
)
from trainrun_operator.api.run.story import MAX_CHAPTERS, Chapter, Goodput

IDENTITY_LENGTH = 4
"""Characters of an agent's random identity in the start record: for 1,024 agents 4 KB."""

MAX_DISTRUSTED = 8
"""Distrusted nodes that the status keeps."""

MAX_INCIDENTS = 10
"""Settled incidents that the status keeps (etcd objects should stay small)."""

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
"""For people; derived from facts in every pass, never read back. The resource has it as a plain
string: a newer operator may use other values."""

INTERNAL = "internal"
"""The object in the resource's status with the fields that only the operator reads."""

ConditionStatus = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord(StatusPart):
    """What attempt `attempt` starts with; written once, before its first start order."""

    attempt: Annotated[int, Field(ge=1)]
    """Number of the attempt."""
    roster: Annotated[tuple[int, ...], Field(max_length=1024)]
    """For each slot, the creation of its worker (`<run>-<slot>-<creation>`)."""
    agents: Annotated[str, Field(max_length=1024 * IDENTITY_LENGTH)]
    """For each slot, the first four characters of its agent's random identity, joined: they reveal
    a worker that something else recreated under the same name."""
    world_size: Annotated[int, Field(ge=1)]
    """Processes over all workers."""
    resume_point: HandedCheckpoint | None = None
    """The checkpoint that every rank gets; absent: the attempt starts from scratch."""
    trial_of: HandedCheckpoint | None = None
    """The newest checkpoint, if this attempt tries the one before it; absent: it does not."""
    staged: Annotated[bool, Field(exclude_if=not_)] = False
    """The resume point was on the workers' disks and not in the store yet."""
    master_addr: Annotated[str, Field(max_length=253)]
    """MASTER_ADDR, offered by slot 0's agent."""
    master_port: Annotated[int, Field(ge=1, le=65535)]
    """MASTER_PORT, offered by slot 0's agent."""
    template_hash: Annotated[str, Field(max_length=64)]
    """Hash of the pod template of all workers in the roster."""
    run_id: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """The run's id, which slot 0's agent read from the store."""
    time: datetime
    """When the attempt was started."""

    def identity(self, slot: int) -> str:
        """The beginning of the identity of the slot's agent."""
        return self.agents[slot * IDENTITY_LENGTH : (slot + 1) * IDENTITY_LENGTH].rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement(StatusPart):
    """The gang's pods were given back because only a part of them found room."""

    tries: Annotated[int, Field(ge=1)]
    """How often in a row."""
    not_before: datetime
    """Its workers are created again at this time at the earliest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry(StatusPart):
    """An event of the run, emitted by every operator that reads it in the status."""

    time: datetime
    """When it was due; time and content identify the event, whichever operator emits it."""
    type: Literal["Normal", "Warning"]
    """Warning: a user should look at it."""
    reason: Annotated[str, Field(max_length=64)]
    """CamelCase, for machines."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """For people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distrusted(StatusPart):
    """A node that misread a checkpoint which another node reads well, or that was believed once."""

    node: Annotated[str, Field(max_length=253)]
    """Its name."""
    but_for: HandedCheckpoint | None = None
    """The one checkpoint about which the operator believes it, since no other node could check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(StatusPart):
    """A Kubernetes condition."""

    type: Annotated[str, Field(max_length=64)]
    """Complete, Failed, Suspended, Running, TemplateValid, StorageReady, Reconciling, Stalled, or a
    worker's warning."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(max_length=64)]
    """CamelCase, for machines."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """For people: what it means and what to do."""
    last_transition_time: datetime
    """When status or reason last changed."""
    observed_generation: int = 0
    """metadata.generation that this was derived from."""


# Without slots, which `replacing.replace` makes use of; so is the class below.
@dataclass(frozen=True, kw_only=True)
class Internal(StatusPart):
    """For the operator only; do not rely on it. It holds what the operator remembers between two
    passes; names and meanings change from version to version without notice."""

    holder: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """The installation of the operator that leads the run: its namespace, and the key by which it
    recognizes its workers. Absent: none yet."""
    taken_over: datetime | None = None
    """When this holder took the run over from another; workers created before are not its own."""
    storage_generation: Annotated[int, Field(exclude_if=not_)] = 0
    """The generation of its folder that the run is in; 0: the storage is not claimed yet."""
    start_record: StartRecord | None = None
    """What the newest attempt started with."""
    ending: Ending | None = None
    """Set from the moment the newest attempt is given up until the next one starts."""
    save_asked: SaveAsked | None = None
    """Set while the running attempt is asked to save."""
    evidence_asked: EvidenceAsked | None = None
    """Set while the running attempt makes no progress, before the operator acts on it."""
    placement: Placement | None = None
    """Set from the moment the pods are given back for lack of room until an attempt starts."""
    store_wait: StoreWait | None = None
    """Set from the first failed request to the store until an attempt starts."""
    failed_starts: Annotated[dict[str, int], Field(exclude_if=not_)] = field(default_factory=dict)
    """By slot, workers that ended before they took part and were replaced. Cleared when an attempt
    starts or when this becomes an incident."""
    incident: Incident | None = None
    """The incident of the newest attempt, until it is settled."""
    resumptions: Annotated[int, Field(exclude_if=not_)] = 0
    """How often the run was resumed from suspension, or reopened after it had failed: earlier
    acknowledgements by agents no longer count."""
    distrusted: Annotated[
        tuple[Distrusted, ...], Field(max_length=MAX_DISTRUSTED, exclude_if=not_)
    ] = ()
    """Nodes that cannot set a checkpoint aside on their own, the newest last."""
    fruitless: int = 0
    """Attempts in a row that ended without a new step: the backoff grows with this number."""
    free_ends: Annotated[dict[str, int], Field(exclude_if=not_)] = field(default_factory=dict)
    """How many of them ended for a cause that is free at first, by cause, since the last attempt
    that ended for another cause."""
    moments: Annotated[
        dict[str, Annotated[str, Field(max_length=1024)]], Field(exclude_if=not_)
    ] = field(default_factory=dict)
    """By budget, when the newest incidents charged to it were seen: thirteen hexadecimal digits
    each, in microseconds since 1970, oldest first."""
    reached: int | None = None
    """The highest step known to be reached by any attempt before the running one."""
    stepped_from: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Hash of the pod template of the newest ended attempt that has reported a step."""
    longest_attempt: Annotated[float, Field(exclude_if=not_)] = 0.0
    """Seconds of the longest attempt that has ended."""
    without_progress: Annotated[int, Field(exclude_if=not_)] = 0
    """Settled incidents in a row whose attempts gained nothing, of the causes that count for
    failurePolicy.noProgressLimit; incidents of other causes in between do not end the row."""
    tried: HandedCheckpoint | None = None
    """The newest checkpoint with which attempts died although it is not the reason: with the one
    before it they died in the same way."""
    met: Annotated[bool, Field(exclude_if=not_)] = False
    """In some attempt a process has opened the master port, called its agent, or connected to
    another rank."""
    learned: Learned | None = None
    """What ended attempts show about the run's steps; absent: nothing yet."""
    restart: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Hash of the value of the annotation trainrun.dev/restart that was obeyed last."""
    history: Annotated[tuple[HistoryEntry, ...], Field(max_length=32, exclude_if=not_)] = ()
    """The newest events, oldest first."""
    chapters: Annotated[int, Field(exclude_if=not_)] = 0
    """Number of chapters that the run's story has, the open one included."""
    chapter: Chapter | None = None
    """The open chapter; absent while the run is suspended or over."""
    story: Annotated[tuple[Chapter, ...], Field(max_length=MAX_CHAPTERS, exclude_if=not_)] = ()
    """Closed chapters that no agent has stored yet, oldest first."""
    spent: Annotated[dict[str, float], Field(exclude_if=not_)] = field(default_factory=dict)
    """Seconds of all closed chapters, by bucket."""


@dataclass(frozen=True, kw_only=True)
class TrainRunStatus(Internal):
    """status of a TrainRun."""

    observed_generation: int = 0
    """metadata.generation of the spec that the operator acted on last; -1: on none yet."""
    phase: Annotated[str, Field(max_length=64)] = "Pending"
    """One word for people: where the run is in its life."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """One word for people: what the run waits for or why it ended; absent while it runs."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=32), MapList("type")] = ()
    """Complete, Failed, Suspended, Running, WorkersReady, TemplateValid, StorageReady, warnings,
    and one of Reconciling and Stalled, or neither."""
    run_id: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """The run's id in trackers (TRAINRUN_RUN_ID): the same wherever it resumes from its storage.
    Absent until an attempt starts."""
    attempt: int = 0
    """Highest attempt number used so far; it only grows."""
    incidents: Annotated[tuple[Incident, ...], Field(max_length=MAX_INCIDENTS)] = ()
    """The last settled incidents, oldest first."""
    restarts: int = 0
    """Attempts started after the first one, for any reason."""
    failures: Failures = field(default_factory=Failures)
    """Budgets."""
    goodput: Goodput | None = None
    """What the run's time went into."""
    workers: Workers = field(default_factory=Workers)
    """Workers that answer."""
    progress: Progress = field(default_factory=Progress)
    """Step and metrics."""
    posted: PostedProgress | None = None
    """Progress that the training framework posts by itself. Absent if the script reports steps."""
    output: OutputSteps | None = None
    """Progress that the output of the script shows. Absent if the script reports steps."""
    checkpoint: CheckpointStatus | None = None
    """Newest committed checkpoint."""
    start_time: datetime | None = None
    """When the operator first saw the run, or when it was last resumed from suspension; moved later
    by the time that it was failed."""
    completion_time: datetime | None = None
    """When it succeeded or failed."""
    advice: Annotated[str, Field(max_length=512, exclude_if=not_)] = ""
    """What would shorten recoveries: workers.warmStart, with numbers. Present from the first
    recovery that spent much of its time on imports; absent if warmStart is set."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """As `json_object` writes it.

        Open, at the top and in `internal`: the API server would remove unknown fields. So an
        operator that is newer or older than the CRD finds everything that it wrote.
        """
        written = handler.resolve_ref_schema(cls.described(handler(schema), handler))
        for part in fields(Internal):
            del written["properties"][to_camel(part.name)]
        written["properties"][INTERNAL] = {
            "type": "object",
            "description": Internal.__doc__,
            "additionalProperties": True,
        }
        written["additionalProperties"] = True
        return written

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, or None."""
        return next((c for c in self.conditions if c.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Whether the condition of this type is present and True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def all_incidents(self) -> tuple[Incident, ...]:
        """The settled incidents, in order, then the one that is not settled yet."""
        return (*self.incidents, *filter(None, [self.incident]))

    @property
    def runs_tasks(self) -> bool:
        """Whether it is a program of tasks, which keeps its steps in a log, without checkpoints."""
        return OF_TASKS in self.progress.metrics

    @property
    def finished(self) -> bool:
        """Whether it has succeeded or failed; only its user undoes this, by raising a limit."""
        return self.is_true("Complete") or self.is_true("Failed")


_STATUS = TypeAdapter(TrainRunStatus)
_INCIDENT = TypeAdapter(Incident)
_INTERNAL_NAMES = frozenset(to_camel(field.name) for field in fields(Internal))


def status_from(json_object: Mapping[str, Any]) -> TrainRunStatus:
    """The status in a custom resource; raises ValueError that names every field that is wrong."""
    visible = {name: value for name, value in json_object.items() if name not in _INTERNAL_NAMES}
    return _STATUS.validate_python({**visible, **json_object.get(INTERNAL, {})})


def json_object(status: TrainRunStatus) -> dict[str, Any]:
    """The status as JSON for the custom resource."""
    written = as_json(_STATUS, status)
    internal = {name: written.pop(name) for name in _INTERNAL_NAMES & written.keys()}
    return {**written, INTERNAL: internal}


def json_size(status: TrainRunStatus) -> int:
    """Bytes of the status as compact JSON in UTF-8, which is how the API server keeps it."""
    flat = len(_STATUS.dump_json(status, by_alias=True, exclude_none=True))
    return flat + len(f'"{INTERNAL}":{{}}')


def incident_object(incident: Incident) -> dict[str, Any]:
    """An incident as JSON, as in the status."""
    return as_json(_INCIDENT, incident)
