"""Python functions that are retried, and whose lost results are made again.

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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainrun.tasks.errors import (
        GetTimeoutError,
        LogTaken,
        ObjectLostError,
        OutOfMemoryError,
        StoreForgot,
        TaskCancelledError,
        TaskError,
        TaskTimeout,
        TaskUnschedulableError,
        WorkerCrashedError,
    )
    from trainrun.tasks.files import File
    from trainrun.tasks.function import TaskFunction, task
    from trainrun.tasks.main import run
    from trainrun.tasks.refs import ObjectRef
    from trainrun.tasks.results import cancel, get, put, wait
    from trainrun.tasks.running import output_directory
    from trainrun.tasks.values import Folder

# No name may be a module's as well: who imports the module would find it under that name.
_HOMES = {
    "files": ("File",),
    "function": ("TaskFunction", "task"),
    "main": ("run",),
    "refs": ("ObjectRef",),
    "results": ("cancel", "get", "put", "wait"),
    "running": ("output_directory",),
    "values": ("Folder",),
}
"""All other names are in `errors`."""
__all__ = [
    "File",
    "Folder",
    "GetTimeoutError",
    "LogTaken",
    "ObjectLostError",
    "ObjectRef",
    "OutOfMemoryError",
    "StoreForgot",
    "TaskCancelledError",
    "TaskError",
    "TaskFunction",
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


if not TYPE_CHECKING:  # so that type checkers still find a misspelt name

    def __getattr__(name):
        """Load a name at its first use: an operator's imports need no more than one module."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = next((module for module, names in _HOMES.items() if name in names), "errors")
        value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
