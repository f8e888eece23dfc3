"""Requests of a training process to its agent, and the replies; both ends use this module.

Layer: contract, pure. Requests and replies are lines of JSON; replies come in the order of the
requests. Unknown fields are ignored. Large content is passed in files.
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
    """Step, metrics and metadata of the resume point."""

    attempt: int
    step: int
    metrics: dict[str, Any]
    """JSON-safe (see `contract.metrics`)."""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A checkpoint's files are on this node."""

    path: str
    """The local directory, or the file that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveNow:
    """All ranks must save at this call of `should_save()`."""

    reason: str
    deadline: Remaining | None
    """When the worker may be taken away; None: not known."""
    writer_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The answer to a call of `should_save()`."""

    save: SaveNow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksDone:
    """The store has done what `AskTasks` asked for."""

    written: bool = False
    """The batch is stored at its position."""
    sizes: tuple[int | None, ...] = ()
    """Bytes of each name; None: it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """The secret of the ranks of an attempt."""

    key: str = field(repr=False)
    """Hexadecimal."""
    uri: str
    """Address of the folder `tasks/`, for display."""
    lost: tuple[tuple[int, int], ...] = ()
    """Attempt and rank of the last lost ranks: see `contract.answer.LostRank`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The agent cannot do what the request asks for."""

    error: str
    kind: str = ""
    """The class in `trainrun.errors` that the process must raise; empty: none in particular."""


Reply = Granted | Described | Fetched | Decided | TasksDone | AttemptKey | Failed


def reply_line(reply: Reply) -> str:
    """The line that an agent sends."""
    return json.dumps(wire.encode(reply), separators=(",", ":"), allow_nan=False)


# ------------------------------------------------------------------------- requests


class Question(Protocol[R_co]):
    """A request, with the type of its reply."""

    @property
    def reply(self) -> type[R_co]:
        """The class of the reply."""

    @property
    def type(self) -> str:
        """The name of its type on the socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToStage:
    """Ask to stage files of `step`; the reply comes when there is room."""

    type: ClassVar[str] = "room"
    reply = Granted
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCheckpoint:
    """Download the resume point."""

    type: ClassVar[str] = "checkpoint"
    reply = Fetched
    rank: int | None
    """Only the files that this rank reported; None: all."""
    include: tuple[str, ...] = ()
    """Only files whose name matches one of these patterns; empty: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCheckpoint:
    """Return step and metrics of the resume point."""

    type: ClassVar[str] = "checkpoint-info"
    reply = Described


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchInitial:
    """Download the checkpoint that `checkpoint.initialFrom` names."""

    type: ClassVar[str] = "initial"
    reply = Fetched
    include: tuple[str, ...] = ()
    """As in `FetchCheckpoint`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRanges:
    """Download ranges of one file of the resume point; the process deletes what it gets."""

    type: ClassVar[str] = "ranges"
    reply = Fetched
    file: str
    """Its name in the checkpoint."""
    ranges: tuple[tuple[int, int], ...]
    """Offset and number of bytes of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSave:
    """The slow path of `should_save()`: call number `call` waits for its answer."""

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
    """Position of a batch to append, or after which to read."""
    path: str = ""
    """The file to store or to write: an object, or batches, each ending in a newline."""
    names: tuple[str, ...] = ()
    """Names of objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAttemptKey:
    """Return the key of the attempt."""

    type: ClassVar[str] = "attempt-key"
    reply = AttemptKey


Request = (
    AskToStage
    | FetchCheckpoint
    | DescribeCheckpoint
    | FetchInitial
    | FetchRanges
    | AskSave
    | AskTasks
    | AskAttemptKey
)
"""Messages that the agent answers, in their order."""
