"""What a driver and its workers tell each other; and what a worker and its launcher do.

Layer: tasks. Pickled: over the wire, and read only from a peer that has proven that it knows the
attempt's key; to and from the launcher over a socket that both have from the start, while arguments
and results go by files of the try's folder. Level-triggered where something may be lost: a worker
repeats an end until the driver has heard it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainrun.tasks.calls import TaskOptions
from trainrun.tasks.records import Crashed, End, Output, TaskRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A result of another task, or a value of `put`, that a task takes."""

    key: str
    index: int
    object: str
    """Its name in the keep; empty where it is inline."""
    output: Output


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask:
    """Run this."""

    run: TaskRun
    function: str
    """`module:qualname`; the module of the program itself is `__main__`."""
    arguments: bytes
    """A pickle of `(args, kwargs)`, in which each reference is an `ObjectRef`."""
    options: TaskOptions
    inputs: tuple[Input, ...] = ()
    """Of each reference that stands in the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask:
    """End this, and say Stopped of it; to the launcher: kill it."""

    run: TaskRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
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


ToWorker = StartTask | StopTask | Acknowledged | Bring | Leave
ToDriver = Joined | Ended | Brought


@dataclass(frozen=True, slots=True)
class ReadyTry:
    """A try whose inputs are here: what stands in the folder's file `call`."""

    order: StartTask
    """Without its inputs."""
    values: Mapping[tuple[str, int], Path | bytes]
    """By key and index of each reference: the pickle, a file with it, or the directory of a
    `Folder`; read-only."""
    folder: Path
    """Its own, empty: result number I that is not inline is left as the file `I`."""


@dataclass(frozen=True, slots=True)
class StartTry:
    """To the launcher: run what stands in the folder's file `call`."""

    run: TaskRun
    folder: Path
    options: TaskOptions
    devices: tuple[str, ...]
    """GPUs that it may use."""


@dataclass(frozen=True, slots=True)
class Imported:
    """From the launcher: it is ready; or why it cannot import the program, and ends."""

    failed: str = ""


@dataclass(frozen=True, slots=True)
class TryStarted:
    """From the launcher: its process, which leads a group of its own."""

    run: TaskRun
    pid: int


@dataclass(frozen=True, slots=True)
class TryEnded:
    """From the launcher: its process is gone, and what it has started has been killed."""

    run: TaskRun
    crash: Crashed | None
    """None: the folder's file `end` says how it went."""
