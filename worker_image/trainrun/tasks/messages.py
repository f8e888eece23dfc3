"""Messages between a driver and its workers, and between a worker and its launcher.

Layer: tasks. Messages are pickled. Over the network they are read only from a peer that has proven
the attempt's key; the launcher uses a socket pair, with arguments and results in files of the try's
folder. Level-triggered where a message may be lost: a worker repeats an end until the driver has
acknowledged it.
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
    """Its stored name; empty if it is inline."""
    output: Output


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTask:
    """Run this try."""

    run: TaskRun
    function: str
    """`module:qualname`; the module of the program itself is `__main__`."""
    arguments: bytes
    """A pickle of `(args, kwargs)`; references are `ObjectRef`s."""
    options: TaskOptions
    inputs: tuple[Input, ...] = ()
    """One for each reference in the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTask:
    """End this try and report Stopped; to the launcher: kill it."""

    run: TaskRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """This end is in the log: forget it."""

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
    """The first message of every connection, including reconnections."""

    worker: int
    """Its rank."""
    cpus: float
    gpus: int
    running: tuple[TaskRun, ...] = ()
    """Tries that still run or whose end was not acknowledged."""


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
    """The answer to Leave, and the last message; the hub does not pass it on."""


ToWorker = StartTask | StopTask | Acknowledged | Bring | Leave
ToDriver = Joined | Ended | Brought


@dataclass(frozen=True, slots=True)
class ReadyTry:
    """A try whose inputs are on this node: the content of the folder's file `call`."""

    order: StartTask
    """Without its inputs."""
    values: Mapping[tuple[str, int], Path | bytes]
    """By key and index of each reference: the pickle, a file with it, or the directory of a
    `Folder`; read-only."""
    folder: Path
    """Its own empty folder. Result I, unless inline, becomes the file `I`."""


@dataclass(frozen=True, slots=True)
class StartTry:
    """To the launcher: run the folder's file `call`."""

    run: TaskRun
    folder: Path
    options: TaskOptions
    devices: tuple[str, ...]
    """GPUs that it may use."""


@dataclass(frozen=True, slots=True)
class Imported:
    """From the launcher: it is ready, or why it cannot import the program and exits."""

    failed: str = ""


@dataclass(frozen=True, slots=True)
class TryStarted:
    """From the launcher: the try's process, which leads its own group."""

    run: TaskRun
    pid: int


@dataclass(frozen=True, slots=True)
class TryEnded:
    """From the launcher: the try's process is gone and its children are killed."""

    run: TaskRun
    crash: Crashed | None
    """None: the folder's file `end` has the outcome."""
