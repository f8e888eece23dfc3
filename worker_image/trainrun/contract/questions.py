"""What a training process asks its agent, and what it replies: written and read here for both ends.

Layer: contract, pure. A request is a line of JSON and so is its reply; replies come in the order of
the requests. Unknown fields are ignored. Whatever may be large goes by files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from trainrun.contract import wire
from trainrun.contract.ages import Remaining

R_co = TypeVar("R_co", covariant=True)


# ------------------------------------------------------------------------- replies


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """There is room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What is known of the resume point."""

    attempt: int
    step: int
    metrics: dict[str, Any]
    """JSON-safe (see `contract.metrics`)."""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A checkpoint's files are on this node."""

    path: str
    """The local directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveNow:
    """All ranks are to save at this call of `should_save()`."""

    reason: str
    deadline: Remaining | None
    """When the worker may be gone; None: not known."""
    writer_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The answer to a call of `should_save()`."""

    save: SaveNow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksDone:
    """The store has done it."""

    written: bool = False
    """The batch stands at its position."""
    sizes: tuple[int | None, ...] = ()
    """One for each name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """What the ranks of an attempt know, and nobody else."""

    key: str = field(repr=False)
    """Hexadecimal."""
    uri: str
    """Address of the folder `tasks/`, for people."""
    lost: tuple[tuple[int, int], ...] = ()
    """Attempt and rank of those that were lost last: see `contract.answer.LostRank`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The agent cannot do what it was asked for."""

    error: str
    kind: str = ""
    """The class in `trainrun.errors`, where the process is to raise that one."""


Reply = Granted | Described | Fetched | Decided | TasksDone | AttemptKey | Failed


def reply_line(reply: Reply) -> str:
    """The line that an agent sends."""
    return json.dumps(wire.encode(reply), separators=(",", ":"), allow_nan=False)


# ------------------------------------------------------------------------- requests


class Question(Protocol[R_co]):
    """A request that knows its reply."""

    @property
    def reply(self) -> type[R_co]:
        """What answers it."""

    @property
    def type(self) -> str:
        """What it is called on the socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToStage:
    """May files of `step` be staged? The answer waits for room."""

    type: ClassVar[str] = "room"
    reply = Granted
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCheckpoint:
    """Download the resume point."""

    type: ClassVar[str] = "checkpoint"
    reply = Fetched
    rank: int | None
    """Only the files that this rank brought; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCheckpoint:
    """Tell step and metrics of the resume point."""

    type: ClassVar[str] = "checkpoint-info"
    reply = Described


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchInitial:
    """Download what `checkpoint.initialFrom` names."""

    type: ClassVar[str] = "initial"
    reply = Fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSave:
    """The slow path of `should_save()`: call `call` waits for its answer."""

    type: ClassVar[str] = "save"
    reply = Decided
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTasks:
    """A call of `trainrun.tasks.task_storage.TaskStorage`."""

    type: ClassVar[str] = "tasks"
    reply = TasksDone
    call: str
    """The name of the method."""
    position: int = 0
    """Of a batch to append, or behind which to read."""
    path: str = ""
    """The file to store, or to make: of an object, or of batches, each with a line end."""
    names: tuple[str, ...] = ()
    """Of objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAttemptKey:
    """Tell it."""

    type: ClassVar[str] = "attempt-key"
    reply = AttemptKey


Request = (
    AskToStage
    | FetchCheckpoint
    | DescribeCheckpoint
    | FetchInitial
    | AskSave
    | AskTasks
    | AskAttemptKey
)
"""Messages that are answered, in their order."""
