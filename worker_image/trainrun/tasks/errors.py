"""What `tasks.get` raises. Names follow Ray's core where it has the same thing.

Layer: tasks, pure. Each names function, arguments in short, key, try and remedy in its message.
"""

from __future__ import annotations

from typing import Literal

from trainrun.errors import StoreForgot as StoreForgot  # noqa: PLC0414 - for the reader of this module
from trainrun.errors import TrainRunError

LostReason = Literal[
    "Put",  # a value of put(), which nobody can make again
    "Unknown",  # the call that made it was not made in this program
    "LineageDisabled",
    "LineageEvicted",
    "RetriesDisabled",  # max_retries=0
    "ReconstructionsExceeded",
    "Cancelled",
    "OutputChanged",  # on_change="fail"
]


class _OfTask(TrainRunError):
    """Of one task, which `key` names."""

    __module__ = "trainrun.tasks"

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class TaskError(_OfTask):
    """The function has raised. What `get` raises is also an instance of the exception's class."""

    __module__ = "trainrun.tasks"

    def __init__(self, message: str, *, key: str = "", cause: BaseException | None = None) -> None:
        super().__init__(message, key=key)
        self.cause = cause
        """The exception; None where it could not be pickled."""


class WorkerCrashedError(_OfTask):
    """The task's process has died with each of its tries."""

    __module__ = "trainrun.tasks"


class OutOfMemoryError(WorkerCrashedError):
    """The last try was killed because it used too much memory."""

    __module__ = "trainrun.tasks"


class TaskTimeout(WorkerCrashedError):
    """The last try took longer than the task's `timeout`."""

    __module__ = "trainrun.tasks"


class TaskUnschedulableError(_OfTask):
    """The task needs more CPUs or GPUs than any worker has."""

    __module__ = "trainrun.tasks"


class TaskCancelledError(_OfTask):
    """The task was cancelled."""

    __module__ = "trainrun.tasks"


class ObjectLostError(_OfTask):
    """A result is lost, and cannot be made again."""

    __module__ = "trainrun.tasks"

    def __init__(self, message: str, *, key: str = "", reason: LostReason = "Unknown") -> None:
        super().__init__(message, key=key)
        self.reason = reason


class GetTimeoutError(TrainRunError, TimeoutError):
    """What was asked for is not there within the `timeout` of `get`."""

    __module__ = "trainrun.tasks"


class LogTaken(TrainRunError):
    """Another driver writes this log: this one ends."""

    __module__ = "trainrun.tasks"
