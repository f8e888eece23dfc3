"""What a driver and its workers tell each other.

Layer: tasks. Pickled, and read only from a peer that has proven that it knows the attempt's key.
Level-triggered where something may be lost: a worker repeats an end until the driver has heard it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainrun.tasks.ends import End, Output, TaskRun
from trainrun.tasks.options import RetryExceptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A result of another task, or a value of `put`, that a task takes."""

    key: str
    index: int
    object: str
    """Its name in the keep; empty where it is inline."""
    output: Output


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """For one try."""

    timeout: float | None = None
    memory: int | None = None
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask:
    """Run this."""

    run: TaskRun
    function: str
    """`module:qualname`; the module of the program itself is `__main__`."""
    arguments: bytes
    """A pickle of `(args, kwargs)`, in which each reference is an `ObjectRef`."""
    inputs: tuple[Input, ...] = ()
    """Of each reference that stands in the arguments."""
    names: tuple[str, ...] = ()
    """Of the results in the keep, one for each."""
    keep: Literal["store", "node"] = "store"
    retry_exceptions: RetryExceptions = False
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask:
    """End this, and say Stopped of it."""

    run: TaskRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """This end stands in the log: forget it."""

    run: TaskRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Bring:
    """Upload your copy of this object, if you have one with this digest."""

    object: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The program is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The first message of a connection, also of one that is made anew after a blip."""

    worker: int
    """Its rank."""
    cpus: float
    gpus: int
    running: tuple[TaskRun, ...] = ()
    """Those that still run, or whose end was not heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A try is over."""

    run: TaskRun
    end: End


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """The answer to Bring."""

    object: str
    there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The answer to Leave, and the last message: the hub keeps it to itself."""


ToWorker = StartTask | StopTask | Heard | Bring | Leave
ToDriver = Joined | Ended | Brought
