"""What stands in the log of a program of tasks, in batches, each written once, in one total order.

Layer: tasks, pure. Invariant: a record precedes its effect, so whoever reads the log knows every
try that may have begun, and budgets are exact whatever dies. Every end of a try without a result or
a recorded exception is the system's: exit code 0 is one of them, as in Ray.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """Its process has ended without a result: by a signal, an exit code, or for want of memory."""

    reason: Literal["Exited", "Signalled", "OutOfMemory", "TimedOut"]
    message: str
    """For people: `killed by SIGSEGV`, `exited with code 0 before it returned`."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMissing:
    """It was never begun: a result that it takes could not be read."""

    key: str
    index: int
    why: Literal["Absent", "Damaged"]
    """Absent: the store says that it is not there. Damaged: its digest is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """It was ended because we said so: cancelled, or the worker leaves."""


End = Finished | Crashed | Raised | InputMissing | Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A driver takes the program up. What ran under the one before runs no more."""

    session: str
    """Unlike that of every other driver."""
    attempt: int = 0
    """Of the run; 0: outside of one."""
    lost: tuple[int, ...] = ()
    """Workers that were lost when the driver before ended: their tries cost a retry."""
    kind: Literal["Began"] = "Began"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """A try goes to a worker."""

    key: str
    generation: int
    number: int
    worker: int
    function: str = ""
    """`module:qualname`, with the first try alone; so are the next three."""
    arguments: str = ""
    """In short, for people."""
    parents: tuple[str, ...] = ()
    """Keys of the results that it takes."""
    code: str = ""
    """Digest of the module's file, to name done tasks whose module has changed since."""
    kind: Literal["Dispatched"] = "Dispatched"


FailedReason = Literal[
    "Exited",
    "Signalled",
    "OutOfMemory",
    "TimedOut",
    "Raised",
    "WorkerLost",
    "InputMissing",  # never counted, like the next
    "Stopped",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A try has ended badly."""

    key: str
    number: int
    reason: FailedReason
    message: str
    counted: bool = True
    """It costs a retry."""
    final: bool = False
    """There is none left, or it is not retried."""
    traceback: str = ""
    """Of an exception that is final."""
    error: str = ""
    """The exception itself, pickled, base64; with a final one alone."""
    kind: Literal["Failed"] = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """All results of a generation are there: the commit."""

    key: str
    generation: int
    number: int
    worker: int
    seconds: float
    outputs: tuple[Output, ...]
    kind: Literal["Done"] = "Done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value of `put`: a leaf, which nobody can make again."""

    key: str
    output: Output
    kind: Literal["Given"] = "Given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """A result of this key is lost and wanted: its task runs again."""

    key: str
    generation: int
    """The new one."""
    why: str
    """For people: which object, and what is wrong with it."""
    kind: Literal["Rebuild"] = "Rebuild"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A rebuild gave another content than before."""

    key: str
    generation: int
    index: int
    kind: Literal["Changed"] = "Changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Nobody wants it any more: `tasks.cancel`, or a KeyboardInterrupt in it."""

    key: str
    kind: Literal["Cancelled"] = "Cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Somebody wants it to be tried anew with fresh budgets: a failed or a cancelled one."""

    key: str
    kind: Literal["Reset"] = "Reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The program has ended by itself."""

    outcome: Literal["Returned", "Raised"]
    kind: Literal["Over"] = "Over"


Record = Began | Dispatched | Failed | Done | Given | Rebuild | Changed | Cancelled | Reset | Over


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one object of the log holds."""

    session: str
    """Who wrote it: see `Began.session`; `cli` for a person's command."""
    records: tuple[Record, ...]
    time: float = 0.0
    """Seconds since the epoch on the writer's clock; for people alone."""
    version: int = 1
