"""What an agent replies to the requests of a training process: written and read here for both ends.

Layer: contract, pure. One line of JSON for each request of `contract.messages`, in their
order. Unknown fields are ignored.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from trainrun.contract.ages import Remaining
from trainrun.contract.task_messages import AttemptKey, Fields, TasksDone


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
            # An agent of version 0.1.0 tells none.
            metadata=_object({"metadata": {}, **given}, "metadata"),
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
