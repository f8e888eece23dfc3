"""Records of the log of a program of tasks, written once in batches, in one total order.

Layer: tasks, pure. Invariant: a record precedes its effect, so the log shows every try that may
have started, and retry budgets stay exact whatever dies. An end without a result or a recorded
exception is a system failure, exit code 0 included, as in Ray.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One try of a task."""

    key: str
    generation: int = 1
    """Generation of its results; grows with each rebuild."""
    number: int = 1
    """Number of the try over all generations; only grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One result: its content and where it is."""

    digest: str
    """sha256 of the object's bytes, as hex."""
    size: int
    """Bytes of the object."""
    kind: Literal["Value", "Folder"] = "Value"
    """`Folder`: a tar, the same bytes for the same files."""
    inline: str = ""
    """A small result's pickle, base64; then there is no object."""
    kept: Literal["Store", "Node"] = "Store"
    """`Node`: only in the cache of the node that made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The function returned and all its results are stored."""

    outputs: tuple[Output, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """Its process ended without a result: by a signal, an exit code, or out of memory."""

    reason: Literal["Exited", "Signalled", "OutOfMemory", "TimedOut"]
    message: str
    """For users: `killed by SIGSEGV`, `exited with code 0 before it returned`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The function raised an exception, or its result cannot be pickled."""

    error: str
    """`ValueError: no such shard`."""
    traceback: str
    pickled: str = ""
    """The exception, pickled, base64; empty if it cannot be pickled."""
    retriable: bool = False
    """`retry_exceptions` lists it."""
    cancelled: bool = False
    """It was a KeyboardInterrupt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMissing:
    """The function was not called: one of its inputs could not be read."""

    key: str
    index: int
    why: Literal["Absent", "Damaged"]
    """Absent: the store does not have it. Damaged: its digest is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The driver ended the try: it was cancelled, or the worker leaves."""


End = Finished | Crashed | Raised | InputMissing | Stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A driver starts or continues the program. Tries of the previous driver no longer run."""

    session: str
    """Unique to this driver."""
    attempt: int = 0
    """The run's attempt; 0 outside a run."""
    lost: tuple[int, ...] = ()
    """Workers lost with the previous driver: their tries cost a retry."""
    kind: Literal["Began"] = "Began"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatched:
    """A try is sent to a worker."""

    key: str
    generation: int
    number: int
    worker: int
    function: str = ""
    """`module:qualname`. Set only for the first try, like the next three fields."""
    arguments: str = ""
    """In short, for messages."""
    parents: tuple[str, ...] = ()
    """Keys of its inputs."""
    code: str = ""
    """Digest of the module's code, to find done tasks whose code has changed since."""
    kind: Literal["Dispatched"] = "Dispatched"


FailedReason = Literal[
    "Exited",
    "Signalled",
    "OutOfMemory",
    "TimedOut",
    "Raised",
    "WorkerLost",
    "InputMissing",  # never counted; neither is the next
    "Stopped",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A try ended without a result."""

    key: str
    number: int
    reason: FailedReason
    message: str
    counted: bool = True
    """It costs a retry."""
    final: bool = False
    """No retry is left, or the failure is not retried."""
    traceback: str = ""
    """Only of a final exception."""
    error: str = ""
    """The exception, pickled, base64; only if it is final."""
    kind: Literal["Failed"] = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The commit: all results of a generation are stored."""

    key: str
    generation: int
    number: int
    worker: int
    seconds: float
    outputs: tuple[Output, ...]
    kind: Literal["Done"] = "Done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A value of `put`, which no task can rebuild."""

    key: str
    output: Output
    kind: Literal["Given"] = "Given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """A result of this key is lost and needed, so its task runs again."""

    key: str
    generation: int
    """The new one."""
    why: str
    """For users: which object, and what is wrong with it."""
    kind: Literal["Rebuild"] = "Rebuild"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A rebuild gave different content than before."""

    key: str
    generation: int
    index: int
    kind: Literal["Changed"] = "Changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Cancelled, by `tasks.cancel` or by a KeyboardInterrupt in the task."""

    key: str
    kind: Literal["Cancelled"] = "Cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A failed or cancelled task is to be tried again, with fresh budgets."""

    key: str
    kind: Literal["Reset"] = "Reset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The program ended by itself."""

    outcome: Literal["Returned", "Raised"]
    kind: Literal["Over"] = "Over"


Record = Began | Dispatched | Failed | Done | Given | Rebuild | Changed | Cancelled | Reset | Over


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The content of one object of the log."""

    session: str
    """Its writer: see `Began.session`; `cli` for a user's command."""
    records: tuple[Record, ...]
    time: float = 0.0
    """Seconds since the epoch on the writer's clock; only for display."""
    version: int = 1
