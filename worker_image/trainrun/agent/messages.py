"""What a training process tells its agent, as typed messages.

Layer: agent, pure. Newline-delimited JSON on a unix socket; unknown types and fields are ignored,
since the library in a user's image may be newer than the agent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of a connection."""

    rank: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`trainrun.report`: the rank has passed `step`."""

    step: int
    metrics: Mapping[str, object]
    files: str | None
    """Name of its directory below the rank's staging folder; None: no files."""
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """May files of `step` be staged? The answer waits for room."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCheckpoint:
    """Download the resume point."""

    rank: int | None
    """Only the files that this rank brought; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInfo:
    """Step and metrics of the resume point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchInitial:
    """Download what `checkpoint.initialFrom` names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSave:
    """The slow path of `should_save()`: call `call` waits for its answer."""

    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """`trainrun.finish()`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An uncaught exception is about to end the process."""

    error: str


Request = Room | FetchCheckpoint | CheckpointInfo | FetchInitial | AskSave
"""Messages that are answered, in their order."""

Statement = Report | Finish | Raised
"""Messages that are not answered."""

Message = Hello | Statement | Request


class MalformedLine(ValueError):
    """A line that is no message."""


def parse(line: bytes) -> Message | None:
    """Read one line; None for a type that this version does not know. Raises MalformedLine."""
    try:
        fields = json.loads(line)
        read = _READERS.get(fields["type"])
        return read(fields) if read is not None else None
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedLine(f"not a message of the library: {line[:200]!r} ({error!r})") from error


def _report(fields: Mapping[str, object]) -> Report:
    files, metrics = fields.get("files"), fields.get("metrics") or {}
    if files is not None and (not isinstance(files, str) or "/" in files or files in (".", "..")):
        raise ValueError(f"files: {files!r} is no directory name")
    if not isinstance(metrics, dict):
        raise ValueError(f"metrics: {metrics!r:.80} is no object")
    return Report(
        step=_int(fields, "step"), metrics=metrics, files=files, whole=bool(fields.get("whole"))
    )


def _int(fields: Mapping[str, object], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int):
        raise ValueError(f"{name}: {value!r:.80} is no integer")
    return value


def _fetch(fields: Mapping[str, object]) -> FetchCheckpoint:
    return FetchCheckpoint(rank=None if fields.get("rank") is None else _int(fields, "rank"))


_READERS: Mapping[str, Callable[[Mapping[str, object]], Message]] = {
    "hello": lambda fields: Hello(rank=_int(fields, "rank"), pid=_int(fields, "pid")),
    "report": _report,
    "room": lambda fields: Room(step=_int(fields, "step")),
    "checkpoint": _fetch,
    "checkpoint-info": lambda _fields: CheckpointInfo(),
    "initial": lambda _fields: FetchInitial(),
    "save": lambda fields: AskSave(call=_int(fields, "call")),
    "finish": lambda _fields: Finish(),
    "exception": lambda fields: Raised(error=str(fields["error"])),
}
