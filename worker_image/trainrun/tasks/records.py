"""What stands in the log of a program of tasks, in batches, each written once, in one total order.

Layer: tasks, pure. Invariant: a record precedes its effect, so whoever reads the log knows every
try that may have begun, and budgets are exact whatever dies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainrun.tasks.ends import Output


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
