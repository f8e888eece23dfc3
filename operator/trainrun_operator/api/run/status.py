"""The status of a TrainRun: what the operator remembers and what its users read; and its JSON.

Layer: api; the one place where a status is validated. Whatever the core must remember between two
passes stands here and nowhere else, so an operator that restarts with nothing but the status goes
on where the one before stopped.

Plain frozen dataclasses: the core changes one with `dataclasses.replace`, whose arguments mypy
checks, and pays for no validation. What is written and read is checked by the annotations, and by
the CRD, which is made from the same classes. In JSON: absent instead of null, camelCase; what only
the operator reads (`Internal`) stands in one object of its own, and inside it is a part of the
status like any other.
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
"""Characters of an agent's random identity kept in the start record: 1,024 of them are 4 KB."""

MAX_DISTRUSTED = 8
"""Nodes remembered whose word about a checkpoint is not enough."""

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
"""What a person reads; derived from facts in every pass, never read back. Text in the resource: a
newer operator may know others."""

INTERNAL = "internal"
"""The object of the resource's status that holds what only the operator reads."""

ConditionStatus = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRecord(StatusPart):
    """What attempt `attempt` was started with; written once, before its first start order."""

    attempt: Annotated[int, Field(ge=1)]
    """Number of the attempt."""
    roster: Annotated[tuple[int, ...], Field(max_length=1024)]
    """For each slot, the number of creation of its worker (`<run>-<slot>-<creation>`)."""
    agents: Annotated[str, Field(max_length=1024 * IDENTITY_LENGTH)]
    """For each slot, the first four characters of its agent's random identity, one after the other:
    a worker that somebody recreated under the same name is not the one that was started."""
    world_size: Annotated[int, Field(ge=1)]
    """Processes over all workers."""
    resume_point: HandedCheckpoint | None = None
    """The checkpoint handed to every rank; absent: the attempt starts from nothing."""
    trial_of: HandedCheckpoint | None = None
    """The newest checkpoint, where this attempt tries the one before it; absent: it does not."""
    master_addr: Annotated[str, Field(max_length=253)]
    """MASTER_ADDR, offered by slot 0's agent."""
    master_port: Annotated[int, Field(ge=1, le=65535)]
    """MASTER_PORT, offered by slot 0's agent."""
    template_hash: Annotated[str, Field(max_length=64)]
    """Hash of the pod template that every worker of the roster was made from."""
    run_id: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """The run's id, as slot 0's agent has it from the store."""
    time: datetime
    """When the attempt was started."""

    def identity(self, slot: int) -> str:
        """The beginning of the identity of the slot's agent."""
        return self.agents[slot * IDENTITY_LENGTH : (slot + 1) * IDENTITY_LENGTH].rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement(StatusPart):
    """The gang was given back because there was room for a part of it only."""

    tries: Annotated[int, Field(ge=1)]
    """How often in a row."""
    not_before: datetime
    """Its workers are not created again earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry(StatusPart):
    """An event of the run, told by whoever reads the status that holds it."""

    time: datetime
    """When it was due; with what it says, this makes it one and the same whoever tells it."""
    type: Literal["Normal", "Warning"]
    """Warning: something to look at."""
    reason: Annotated[str, Field(max_length=64)]
    """CamelCase, for machines."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """For people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distrusted(StatusPart):
    """A node that reads wrongly what another node reads well, or whose word was taken once."""

    node: Annotated[str, Field(max_length=253)]
    """Its name."""
    but_for: HandedCheckpoint | None = None
    """The one checkpoint about which its word is taken, since no other node could read it."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Internal(StatusPart):
    """For the operator; do not rely on it. What it remembers between two looks at the run; names
    and meanings change from version to version without notice."""

    holder: Annotated[str, Field(max_length=128, exclude_if=not_)] = ""
    """The installation of the operator that leads the run: its namespace, and which key it knows
    its workers by. Absent: nobody yet."""
    taken_over: datetime | None = None
    """When this holder took the run over from another one; workers made before are none of its."""
    storage_generation: Annotated[int, Field(exclude_if=not_)] = 0
    """In which generation of its folder the run is; 0: nobody has claimed the storage yet."""
    start_record: StartRecord | None = None
    """What the newest attempt was started with."""
    ending: Ending | None = None
    """Set from the moment the newest attempt is given up until the next one starts."""
    save_asked: SaveAsked | None = None
    """Set while the running attempt is asked to save."""
    evidence_asked: EvidenceAsked | None = None
    """Set while the running attempt stands still, before anything is done about it."""
    placement: Placement | None = None
    """Set from the moment the pods are given back for lack of room until an attempt starts."""
    store_wait: StoreWait | None = None
    """Set from the moment the store is asked in vain until an attempt starts."""
    failed_starts: Annotated[dict[str, int], Field(exclude_if=not_)] = field(default_factory=dict)
    """By slot, workers that ended before they took part and had to make room for another one, until
    an attempt starts or that is an incident."""
    incident: Incident | None = None
    """The incident of the newest attempt, until it is settled."""
    resumptions: Annotated[int, Field(exclude_if=not_)] = 0
    """How often the run was resumed from suspension, or went on after it had failed: what agents
    acknowledged before that does not count any more."""
    distrusted: Annotated[
        tuple[Distrusted, ...], Field(max_length=MAX_DISTRUSTED, exclude_if=not_)
    ] = ()
    """Nodes whose word alone is not enough to set a checkpoint aside, the newest last."""
    fruitless: int = 0
    """Attempts in a row that ended without a new step: the backoff grows with it."""
    free_ends: Annotated[dict[str, int], Field(exclude_if=not_)] = field(default_factory=dict)
    """How many of them ended for a cause that is free at first, by cause, since one ended for a
    cause that is not."""
    moments: Annotated[
        dict[str, Annotated[str, Field(max_length=1024)]], Field(exclude_if=not_)
    ] = field(default_factory=dict)
    """By budget, when the newest incidents charged to it were seen: thirteen hexadecimal digits
    each, in microseconds since 1970, oldest first."""
    reached: int | None = None
    """The highest step that any attempt before the running one has reached, as far as was heard."""
    stepped_from: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Hash of the pod template of the newest ended attempt that has reported a step."""
    longest_attempt: Annotated[float, Field(exclude_if=not_)] = 0.0
    """Seconds that the longest attempt took of those that have ended."""
    without_progress: Annotated[int, Field(exclude_if=not_)] = 0
    """Settled incidents in a row whose attempts gained nothing, of the causes that count for
    failurePolicy.noProgressLimit; those of other causes in between do not end the row."""
    tried: HandedCheckpoint | None = None
    """The newest checkpoint with which attempts died, and that is not why: with the one before it
    they died in the same way."""
    met: Annotated[bool, Field(exclude_if=not_)] = False
    """In some attempt a process has opened the master port, has spoken to its agent, or was
    connected to another rank."""
    learned: Learned | None = None
    """Absent: nothing yet."""
    restart: Annotated[str, Field(max_length=64, exclude_if=not_)] = ""
    """Which value of the annotation trainrun.dev/restart has been obeyed, as a hash."""
    history: Annotated[tuple[HistoryEntry, ...], Field(max_length=32, exclude_if=not_)] = ()
    """The newest events, oldest first."""
    chapters: Annotated[int, Field(exclude_if=not_)] = 0
    """How many chapters of the run's story were begun."""
    chapter: Chapter | None = None
    """The one that is being written; absent while the run is suspended or over."""
    story: Annotated[tuple[Chapter, ...], Field(max_length=MAX_CHAPTERS, exclude_if=not_)] = ()
    """Closed ones that no agent has stored yet, oldest first."""
    spent: Annotated[dict[str, float], Field(exclude_if=not_)] = field(default_factory=dict)
    """Seconds of all closed ones, by what they went into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRunStatus(Internal):
    """status of a TrainRun."""

    observed_generation: int = 0
    """metadata.generation of the spec that was acted on last; -1 until an operator has looked."""
    phase: Annotated[str, Field(max_length=64)] = "Pending"
    """One word for people: how far the run is in its life."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """One word for people: what it waits for or why it ended; absent while it runs."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=32), MapList("type")] = ()
    """Complete, Failed, Suspended, Running, WorkersReady, TemplateValid, StorageReady, warnings,
    and one of Reconciling and Stalled, or neither."""
    run_id: Annotated[str, Field(max_length=32, exclude_if=not_)] = ""
    """What trackers know the run by (TRAINRUN_RUN_ID): the same wherever it goes on from its
    storage. Absent until an attempt starts."""
    attempt: int = 0
    """Highest attempt number used so far; only grows."""
    incidents: Annotated[tuple[Incident, ...], Field(max_length=MAX_INCIDENTS)] = ()
    """The last settled incidents, oldest first."""
    restarts: int = 0
    """Attempts started after the first one, whatever for."""
    failures: Failures = field(default_factory=Failures)
    """Budgets."""
    goodput: Goodput | None = None
    """What the run's time went into."""
    workers: Workers = field(default_factory=Workers)
    """Workers that answer."""
    progress: Progress = field(default_factory=Progress)
    """Step and metrics."""
    posted: PostedProgress | None = None
    """What its framework posts by itself. Absent where the script reports steps."""
    checkpoint: CheckpointStatus | None = None
    """Newest committed checkpoint."""
    start_time: datetime | None = None
    """When the operator first saw the run, or when it was last resumed from suspension; later by
    the time for which it stood failed."""
    completion_time: datetime | None = None
    """When it succeeded or failed."""
    advice: Annotated[str, Field(max_length=512, exclude_if=not_)] = ""
    """What would have made a recovery shorter: workers.warmStart, with numbers, since the first one
    that consisted of imports to a large part. Absent where there is one."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """As `json_object` writes it.

        Open, at the top and in `internal`: the API server would take out what it does not know. So
        an operator that is newer than the CRD, or older, finds again what it has remembered.
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
        """The condition of this type, if there is one."""
        return next((c for c in self.conditions if c.type == kind), None)

    def is_true(self, kind: str) -> bool:
        """Whether the condition of this type is there and True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def told_incidents(self) -> tuple[Incident, ...]:
        """Those that are settled, in order, and the one that is not yet."""
        return (*self.incidents, *filter(None, [self.incident]))

    @property
    def runs_tasks(self) -> bool:
        """It is a program of tasks: each step is kept in its own log, without checkpoints."""
        return OF_TASKS in self.progress.metrics

    @property
    def finished(self) -> bool:
        """Succeeded, or Failed: a verdict that only its user takes back, by raising a limit."""
        return self.is_true("Complete") or self.is_true("Failed")


_STATUS = TypeAdapter(TrainRunStatus)
_INCIDENT = TypeAdapter(Incident)
_INTERNAL_NAMES = frozenset(to_camel(field.name) for field in fields(Internal))


def status_from(json_object: Mapping[str, Any]) -> TrainRunStatus:
    """The status in a custom resource; raises ValueError that names every field that is wrong."""
    shown = {name: value for name, value in json_object.items() if name not in _INTERNAL_NAMES}
    return _STATUS.validate_python({**shown, **json_object.get(INTERNAL, {})})


def json_object(status: TrainRunStatus) -> dict[str, Any]:
    """What stands in the custom resource."""
    written = as_json(_STATUS, status)
    internal = {name: written.pop(name) for name in _INTERNAL_NAMES & written.keys()}
    return {**written, INTERNAL: internal}


def json_size(status: TrainRunStatus) -> int:
    """Bytes of it as compact JSON in UTF-8, which is how the API server keeps it."""
    flat = len(_STATUS.dump_json(status, by_alias=True, exclude_none=True))
    return flat + len(f'"{INTERNAL}":{{}}')


def incident_object(incident: Incident) -> dict[str, Any]:
    """An incident as it stands in the status."""
    return as_json(_INCIDENT, incident)
