"""The records in the log of a program of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.tasks.task_storage import from_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from trainrun.tasks.records import Record


def records_of(folder: Path) -> list[Record]:
    """All of them, in order; `folder` is a run's, or that of a program outside of one."""
    keep = TaskFolder(RunStore(open_store(folder.parent.as_uri()), folder.name))
    return [record for data in keep.read(0) for record in from_bytes(data).records]
