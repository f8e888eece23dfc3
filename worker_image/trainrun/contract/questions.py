"""What a training process asks its agent, and what it replies: written and read here for both ends.

Layer: contract, pure. A request is a line of JSON and so is its reply; replies come in the order of
the requests. Unknown fields are ignored. Whatever may be large goes by files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Protocol, TypeVar

from trainrun.contract.ages import Remaining

Fields = Mapping[str, object]
"""A message as JSON has it."""

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
    metrics: Fields
    """JSON-safe (see `contract.metrics`)."""
    metadata: Fields = field(default_factory=dict)

    @staticmethod
    def read(given: Fields) -> Described:
        """Raises ValueError and KeyError."""
        return Described(
            attempt=integer(given, "attempt"),
            step=integer(given, "step"),
            metrics=_object(given, "metrics"),
            metadata=_object(given, "metadata"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A checkpoint's files are on this node."""

    path: str
    """The local directory."""
    about: Described | None = None
    """Told with the resume point, for libraries that read it here; ours asks when it needs to."""

    @staticmethod
    def read(given: Fields) -> Fetched:
        """Raises KeyError."""
        return Fetched(path=str(given["path"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveNow:
    """All ranks are to save at this call of `should_save()`."""

    reason: str
    deadline: Remaining | None
    """When the worker may be gone; None: not known."""
    writer_rank: int

    @staticmethod
    def read(given: Fields) -> SaveNow:
        """Raises ValueError and KeyError."""
        return SaveNow(
            reason=str(given["reason"]),
            deadline=_seconds(given, "deadline"),
            writer_rank=integer(given, "writer_rank"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The answer to a call of `should_save()`."""

    save: SaveNow | None

    @staticmethod
    def read(given: Fields) -> Decided:
        """Raises ValueError and KeyError."""
        save = given["save"]
        return Decided(save=SaveNow.read(save) if isinstance(save, dict) else None)


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
    return json.dumps(_fields(reply), separators=(",", ":"), allow_nan=False)


def _fields(reply: Reply) -> Fields:
    match reply:
        case Granted():
            return {"ok": True}
        case Described() | TasksDone() | AttemptKey() | Failed():
            return asdict(reply)
        case Fetched(path=path, about=about):
            return {"path": path, **(asdict(about) if about is not None else {})}
        case Decided(save=save):
            return {"save": asdict(save) if save is not None else None}


# ------------------------------------------------------------------------- requests


class Question(Protocol[R_co]):
    """A request that knows how its reply is read."""

    @property
    def type(self) -> str:
        """What it is called on the socket."""

    def read(self, given: Fields) -> R_co:
        """Raises ValueError and KeyError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskRoom:
    """May files of `step` be staged? The answer waits for room."""

    type: ClassVar[str] = "room"
    step: int

    def read(self, _given: Fields) -> Granted:
        """Any reply that is no failure grants it."""
        return Granted()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCheckpoint:
    """Download the resume point."""

    type: ClassVar[str] = "checkpoint"
    rank: int | None
    """Only the files that this rank brought; None: all."""

    def read(self, given: Fields) -> Fetched:
        """Raises KeyError."""
        return Fetched.read(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeCheckpoint:
    """Tell step and metrics of the resume point."""

    type: ClassVar[str] = "checkpoint-info"

    def read(self, given: Fields) -> Described:
        """Raises ValueError and KeyError."""
        return Described.read(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchInitial:
    """Download what `checkpoint.initialFrom` names."""

    type: ClassVar[str] = "initial"

    def read(self, given: Fields) -> Fetched:
        """Raises KeyError."""
        return Fetched.read(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSave:
    """The slow path of `should_save()`: call `call` waits for its answer."""

    type: ClassVar[str] = "save"
    call: int

    def read(self, given: Fields) -> Decided:
        """Raises ValueError and KeyError."""
        return Decided.read(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTasks:
    """A call of `trainrun.tasks.keep.Keep`."""

    type: ClassVar[str] = "tasks"
    call: str
    """The name of the method."""
    position: int = 0
    """Of a batch to append, or behind which to read."""
    path: str = ""
    """The file to store, or to make: of an object, or of batches, each with a line end."""
    names: tuple[str, ...] = ()
    """Of objects."""

    def read(self, given: Fields) -> TasksDone:
        """Raises KeyError and TypeError."""
        sizes: list[int | None] = given["sizes"]  # type: ignore[assignment]
        return TasksDone(written=bool(given["written"]), sizes=tuple(sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskAttemptKey:
    """Tell it."""

    type: ClassVar[str] = "attempt-key"

    def read(self, given: Fields) -> AttemptKey:
        """Raises KeyError, TypeError and ValueError."""
        lost = tuple((attempt, rank) for attempt, rank in given["lost"])  # type: ignore[attr-defined]
        return AttemptKey(key=str(given["key"]), uri=str(given["uri"]), lost=lost)


Request = (
    AskRoom
    | FetchCheckpoint
    | DescribeCheckpoint
    | FetchInitial
    | AskSave
    | AskTasks
    | AskAttemptKey
)
"""Messages that are answered, in their order."""


def _fetch(given: Fields) -> FetchCheckpoint:
    return FetchCheckpoint(rank=None if given.get("rank") is None else integer(given, "rank"))


def _read_ask(given: Fields) -> AskTasks:
    """Raises ValueError and KeyError."""
    position, names = given.get("position", 0), given.get("names", [])
    if not isinstance(position, int) or not isinstance(names, list):
        raise ValueError(f"position {position!r:.80} or names {names!r:.80} is wrong")
    return AskTasks(
        call=str(given["call"]),
        position=position,
        path=str(given.get("path", "")),
        names=tuple(map(str, names)),
    )


REQUESTS: Mapping[str, Callable[[Fields], Request]] = {
    AskRoom.type: lambda given: AskRoom(step=integer(given, "step")),
    FetchCheckpoint.type: _fetch,
    DescribeCheckpoint.type: lambda _given: DescribeCheckpoint(),
    FetchInitial.type: lambda _given: FetchInitial(),
    AskSave.type: lambda given: AskSave(call=integer(given, "call")),
    AskTasks.type: _read_ask,
    AskAttemptKey.type: lambda _given: AskAttemptKey(),
}
"""How each of them is read. Raises ValueError and KeyError."""


def integer(given: Fields, name: str) -> int:
    """Raises ValueError and KeyError."""
    value = given[name]
    if not isinstance(value, int):
        raise ValueError(f"{name}: {value!r:.80} is no integer")
    return value


def _seconds(given: Fields, name: str) -> float | None:
    value = given[name]
    if value is not None and not isinstance(value, (int, float)):
        raise ValueError(f"{name}: {value!r:.80} is no number")
    return value


def _object(given: Fields, name: str) -> Fields:
    value = given[name]
    if not isinstance(value, dict):
        raise ValueError(f"{name}: {value!r:.80} is no object")
    return value
