"""Task storage outside a run: a folder of this machine.

Layer: tasks; the only module here that imports `trainrun.checkpoint`. Not imported under an agent.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.tasks import LogTaken

PATIENCE = 1.0
"""Seconds before a log that is gone is given up: a folder shows at once what was written."""


class LocalTaskStorage(TaskFolder):
    """A `TaskStorage` in a folder, created if missing. One program at a time owns it, until it is
    closed or its process ends."""

    recompute_remedy = "start the program again"

    def __init__(self, folder: Path) -> None:
        """Raises LogTaken, and StoreError."""
        folder = folder.absolute()
        store = open_store(folder.parent.as_uri())
        store.probe()
        super().__init__(RunStore(store, folder.name), patience=PATIENCE)
        folder.mkdir(exist_ok=True)
        self._lock_file = (folder / "program.lock").open("a+")
        try:
            # The kernel releases the lock when its holder dies. The log still decides.
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock_file.seek(0)
            pid = self._lock_file.read()
            self._lock_file.close()
            raise LogTaken(
                f"process {pid or '(just starting)'} runs the tasks of {folder}. Wait for it, or "
                f"stop it with `kill {pid or 'PID'}`"
            ) from None
        self._lock_file.truncate(0)
        self._lock_file.write(str(os.getpid()))
        self._lock_file.flush()

    def close(self) -> None:
        """Release the folder to the next program."""
        self._lock_file.truncate(0)
        self._lock_file.close()
