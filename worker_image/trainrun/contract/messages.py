"""Messages from a training process to its agent; both ends write and read them with this module.

Layer: contract, pure. Newline-delimited JSON on a unix socket; requests and the agent's replies are
in `contract.questions`. Unknown types and fields are ignored, since the library in a user's image
may be newer or older than the agent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar, get_args

from trainrun.contract import wire
from trainrun.contract.questions import Failed, Question, Request

R = TypeVar("R")

MOST_KINDS, KIND_WIDTH = 16, 120
"""Maximum number of class names sent for an exception, and characters of each."""
PLACE_WIDTH = 120
"""Maximum characters of the place where it was raised."""
SECTION_WIDTH = 100
"""Maximum characters of the name of a long section."""
LONGEST_SECTION = 1e9
"""Maximum timeout of a long section in seconds: 30 years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of a connection."""

    type: ClassVar[str] = "hello"
    rank: int
    pid: int
    stacks: int = 0
    """The signal on which it writes the stacks of its threads (`variables.STACKS`); 0: it has no
    handler, and a signal would end it."""
    imported: float | None = None
    """Seconds since it imported trainrun; None: not given."""
    memory: int = 0
    """Bytes of memory that it used then; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`trainrun.report`: the rank has done `step`. Written by `report_line`."""

    type: ClassVar[str] = "report"
    step: int
    metrics: dict[str, Any] = field(default_factory=dict)
    files: str | None = None
    """Name of its directory below the rank's staging folder; None: no files."""
    whole: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata of the files."""
    nothing: bool = False
    """It has no files for this step; otherwise they may follow."""
    left: str = ""
    """The directory that the files were moved from, named as in `files`: a save still in progress
    writes there. Empty: they were copied."""
    digest: int = 0
    """`trainrun._common.writer_processes.digest` of the files; 0: there are none."""
    pending: bool = False
    """Its files are still being saved: a `Saved` or a `SaveFailed` for this step follows, and the
    rank does not pass the step before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The save of a pending report has ended; the fields are those of `Report`."""

    type: ClassVar[str] = "saved"
    step: int
    files: str | None = None
    left: str = ""
    digest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed:
    """The files of a pending report will not come."""

    type: ClassVar[str] = "save-failed"
    step: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """`trainrun.finish()`."""

    type: ClassVar[str] = "finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedForCheckpoint:
    """`trainrun.get_checkpoint()`, sent with the first message of this process."""

    type: ClassVar[str] = "get-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unstaged:
    """The rank has files for `step` that could not be staged; it may try again."""

    type: ClassVar[str] = "unstaged"
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An uncaught exception is about to end the process."""

    type: ClassVar[str] = "exception"
    error: str
    traceback: str = ""
    kinds: tuple[str, ...] = ()
    """Its class and the base classes, each with its module."""
    at: str = ""
    """`loss.py:88`: where it was raised in the script's own code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionBegun:
    """The rank has entered a long section, in which no step ends."""

    type: ClassVar[str] = "section"
    number: int
    """Number of this section within the process."""
    name: str
    seconds: float
    """How long it may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionEnded:
    """The rank has left it."""

    type: ClassVar[str] = "section-end"
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """The rank is doing steps whose reports wait for the files of an earlier one."""

    type: ClassVar[str] = "working"


Statement = (
    Report
    | Saved
    | SaveFailed
    | Unstaged
    | Finish
    | AskedForCheckpoint
    | Raised
    | SectionBegun
    | SectionEnded
    | Working
)
"""Messages without a reply."""

Message = Hello | Statement | Request


class MalformedLine(ValueError):
    """A line that is not a message."""


# ------------------------------------------------------------------------- written

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def line_of(message: Hello | Statement | Question[object]) -> str:
    """The line that a process sends; for a `Report` use `report_line`."""
    return _encode({"type": message.type, **wire.encode(message)})


def report_line(
    step: int,
    metrics: str,
    *,
    files: str | None = None,
    whole: bool = False,
    metadata: str = "",
    nothing: bool = False,
    left: str = "",
    digest: int = 0,
    pending: bool = False,
) -> str:
    """The line of a `Report`; `metrics` is the JSON of `contract.metrics.to_json`, `metadata` is
    JSON too (empty: none).

    Faster than `line_of`: this runs in each step of a training, see `contract.metrics`.
    """
    named = f'"{files}"' if files is not None else "null"
    more = f',"metadata":{metadata}' if metadata else ""
    if nothing:
        more += ',"nothing":true'
    if left:
        more += f',"left":"{left}"'
    if pending:
        more += ',"pending":true'
    if digest:
        more += f',"digest":{digest}'
    return (
        f'{{"type":"report","step":{step},"metrics":{metrics},"files":{named},'
        f'"whole":{"true" if whole else "false"}{more}}}'
    )


def given_up(step: int, why: str) -> str:
    """The text of a `SaveFailed`, for the output of the rank and the condition of the run."""
    return f"no rank will have a checkpoint of step {step}, since {why}"


# ------------------------------------------------------------------------- read


def parse(line: bytes) -> Message | None:
    """Read one line; None: a type unknown to this version. Raises MalformedLine."""
    try:
        given = json.loads(line)
        cls = _CLASSES.get(given["type"])
        return _checked(wire.decode(cls, given)) if cls is not None else None
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedLine(f"not a message of the library: {line[:200]!r} ({error!r})") from error


def parse_reply(line: bytes, question: Question[R]) -> R | Failed:
    """Read the reply to a request. Raises MalformedLine."""
    try:
        given = json.loads(line)
        if "error" in given:
            return wire.decode(Failed, given)
        return wire.decode(question.reply, given)
    except (ValueError, TypeError) as error:
        raise MalformedLine(f"not a reply of the agent: {line[:200]!r} ({error!r})") from error


def _checked(message: Message) -> Message:
    """Raises ValueError for values that our library never sends."""
    match message:
        case Report(files=files, left=left) | Saved(files=files, left=left):
            for name in (files or "", left):
                if "/" in name or name in (".", ".."):
                    raise ValueError(f"files: {name!r} is not a directory name")
        case Raised(kinds=kinds, at=at):
            kinds = tuple(kind[:KIND_WIDTH] for kind in kinds[:MOST_KINDS])
            return replace(message, kinds=kinds, at=at[:PLACE_WIDTH])
        case SectionBegun(name=name, seconds=seconds):
            if not 0 < seconds <= LONGEST_SECTION:
                raise ValueError(f"seconds: {seconds!r:.80} is not a valid length of a section")
            return replace(message, name=name[:SECTION_WIDTH])
        case Hello(imported=float(imported)) if imported < 0:  # a clock was set back
            return replace(message, imported=0.0)
    return message


_CLASSES: dict[str, type[Message]] = {cls.type: cls for cls in get_args(Message)}
