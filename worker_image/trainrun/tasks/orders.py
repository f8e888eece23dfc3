"""What a rank and its launcher tell each other, over a socket that both have from the start.

Layer: tasks. Arguments and results go by files of the try's folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainrun.tasks.ends import Crashed, TaskRun
from trainrun.tasks.messages import Limits, StartTask


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
    limits: Limits
    devices: tuple[str, ...]
    """GPUs that it may use."""


@dataclass(frozen=True, slots=True)
class StopTry:
    """To the launcher: kill it."""

    run: TaskRun


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
