"""How one try of a task may end.

Layer: tasks, pure. Every end without a result or a recorded exception is the system's: exit code 0
is one of them, as in Ray.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One try of a task."""

    key: str
    generation: int = 1
    """Of its results: one more for each rebuild."""
    number: int = 1
    """Of the try, over all generations; only grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One result: where it is and what it holds."""

    digest: str
    """sha256 of the object's bytes, as hex."""
    size: int
    """Bytes of the object."""
    kind: Literal["Value", "Folder"] = "Value"
    """`Folder`: a tar of it, always the same for the same files."""
    inline: str = ""
    """The pickle itself, base64, where it is small; then there is no object."""
    kept: Literal["Store", "Node"] = "Store"
    """`Node`: only in the caches of the worker that made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """It has returned, and all its results are where they belong."""

    outputs: tuple[Output, ...]
    seconds: float
    kind: Literal["Finished"] = "Finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """Its process has ended without a result: by a signal, an exit code, or for want of memory."""

    reason: Literal["Exited", "Signalled", "OutOfMemory", "TimedOut"]
    message: str
    """For people: `killed by SIGSEGV`, `exited with code 0 before it returned`."""
    kind: Literal["Crashed"] = "Crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """It has raised an exception, or its result cannot be pickled."""

    error: str
    """`ValueError: no such shard`."""
    traceback: str
    pickled: str = ""
    """The exception, base64; empty where it cannot be pickled."""
    retriable: bool = False
    """It is listed by `retry_exceptions`."""
    cancelled: bool = False
    """It was a KeyboardInterrupt."""
    kind: Literal["Raised"] = "Raised"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMissing:
    """It was never begun: a result that it takes could not be read."""

    key: str
    index: int
    why: Literal["Absent", "Damaged"]
    """Absent: the store says that it is not there. Damaged: its digest is wrong."""
    kind: Literal["InputMissing"] = "InputMissing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """It was ended because we said so: cancelled, or the worker leaves."""

    kind: Literal["Stopped"] = "Stopped"


End = Finished | Crashed | Raised | InputMissing | Stopped
