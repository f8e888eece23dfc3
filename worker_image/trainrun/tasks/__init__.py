"""Retry Python functions, and rebuild their lost results.

from trainrun import tasks

@tasks.task(max_retries=3)
def tokenize(shard: str) -> dict: ...

def main():
    print(tasks.get([tokenize.remote(shard) for shard in shards()]))

if __name__ == "__main__":
    tasks.run(main)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Literal

from trainrun.errors import TaskLogMissing, TrainRunError

if TYPE_CHECKING:
    from trainrun.tasks.calls import ObjectRef
    from trainrun.tasks.function import TaskFunction, cancel, get, put, task, wait
    from trainrun.tasks.main import run
    from trainrun.tasks.running import output_directory
    from trainrun.tasks.values import File, Folder

# No name may also be a module's: importing the module would replace the name.
_HOMES = {
    "calls": ("ObjectRef",),
    "function": ("TaskFunction", "cancel", "get", "put", "task", "wait"),
    "main": ("run",),
    "running": ("output_directory",),
    "values": ("File", "Folder"),
}
__all__ = [
    "File",
    "Folder",
    "GetTimeoutError",
    "LogTaken",
    "ObjectLostError",
    "ObjectRef",
    "OutOfMemoryError",
    "TaskCancelledError",
    "TaskError",
    "TaskFunction",
    "TaskLogMissing",
    "TaskTimeout",
    "TaskUnschedulableError",
    "WorkerCrashedError",
    "cancel",
    "get",
    "output_directory",
    "put",
    "run",
    "task",
    "wait",
]

# What `get` raises, under the names of Ray core where Ray has the same error. Each message names
# the function, its arguments in short, the key, the try and the remedy.

LostReason = Literal[
    "Put",  # a value of put(): no task makes it
    "Unknown",  # this program has not made the call that makes it
    "LineageDisabled",
    "LineageEvicted",
    "RetriesDisabled",  # max_retries=0
    "ReconstructionsExceeded",
    "Cancelled",
    "OutputChanged",  # on_change="fail"
]


class OfTask(TrainRunError):
    """A final error of one task, which `key` names."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class TaskError(OfTask):
    """The function raised. What `get` raises is also an instance of that exception's class."""

    def __init__(self, message: str, *, key: str = "", cause: BaseException | None = None) -> None:
        super().__init__(message, key=key)
        self.cause = cause
        """The exception; None if it could not be pickled."""


class WorkerCrashedError(OfTask):
    """The task's process died on every try."""


class OutOfMemoryError(WorkerCrashedError):
    """The last try was killed because it used too much memory."""


class TaskTimeout(WorkerCrashedError):
    """The last try took longer than the task's `timeout`."""


class TaskUnschedulableError(OfTask):
    """The task needs more CPUs or GPUs than any worker has."""


class TaskCancelledError(OfTask):
    """The task was cancelled."""


class ObjectLostError(OfTask):
    """A result is lost and cannot be rebuilt."""

    def __init__(self, message: str, *, key: str = "", reason: LostReason = "Unknown") -> None:
        super().__init__(message, key=key)
        self.reason = reason


class GetTimeoutError(TrainRunError, TimeoutError):
    """The results were not there within the `timeout` of `get`."""


class LogTaken(TrainRunError):
    """Another driver writes this log, so this one stops."""


if not TYPE_CHECKING:  # so that type checkers still find a misspelt name

    def __getattr__(name):
        """Load a name on first use, so that the operator imports only the module it needs."""
        for module, names in _HOMES.items():
            if name in names:
                value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
