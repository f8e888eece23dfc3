"""The log and the results of a program of tasks, in the folder `tasks/` of a run.

Layer: above `NumberedLog`. Implements `trainrun.tasks.task_storage.TaskStorage` over a store.
Invariant: while the log may be missing, no object is reported as absent.
"""

from __future__ import annotations

import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun.checkpoint.numbered_log import NumberedLog
from trainrun.checkpoint.records import add_checksum_to_line, read_checksummed_line
from trainrun.checkpoint.run_store import READERS
from trainrun.contract import layout
from trainrun.errors import (
    CheckpointDamaged,
    ObjectNotFound,
    StoreError,
    StoreUnavailable,
    TaskLogDamaged,
    TaskLogMissing,
)

if TYPE_CHECKING:
    from trainrun.checkpoint.run_store import RunStore

TRUSTED = 5.0
"""Seconds before an append checks again that the log exists."""
PATIENCE = 30.0
"""Seconds for which it must be missing: some servers do not find a new object at first."""
CHUNK = 1 << 20
REMEDY = (
    "The log is the only record of what was done, so TrainRun will not guess what is missing: "
    "restore it from a copy or an older version, or delete {} to compute everything again"
)


class TaskFolder:
    """A `TaskStorage` over the folder of a run."""

    recompute_remedy = "begin a run with another spec.storage.runName"
    """How the user recomputes everything after the log is lost."""

    def __init__(
        self, folder: RunStore, *, patience: float = PATIENCE, scratch: Path | None = None
    ) -> None:
        """`patience`: seconds before a missing log counts as lost; `scratch`: a folder for files in
        transit, None: the system's."""
        self.folder = folder
        self.begun = 0
        """See Answer.begun."""
        self._patience = patience
        self._scratch = scratch
        self._lock = threading.Lock()
        self._batches: list[bytes] = []
        """The batches of the last read."""
        self._log = self._unread()
        self._log_existed = False
        """Whether this process has seen the log."""
        self._last_present = 0.0
        """When the log was last seen, on the monotonic clock."""
        self._missing_since: float | None = None
        """Since when the log is missing; None: it is not."""

    @property
    def uri(self) -> str:
        """See TaskStorage.uri."""
        return layout.tasks_uri(self.folder.uri)

    def read(self, after: int) -> list[bytes]:
        """See TaskStorage.read."""
        with self._lock:
            self._check_not_lost(trusted_for=0.0)
            if after < self._log.position:
                self._log = self._unread()
            first = self._log.position
            self._read_on()
            return self._batches[max(0, after - first) :]

    def append(self, position: int, batch: bytes) -> bool:
        """See TaskStorage.append. The batch is one line of JSON."""
        data = add_checksum_to_line(batch)
        with self._lock:
            self._check_not_lost(trusted_for=TRUSTED)
            if position > self._log.position + 1:
                self._read_on()
            if position > self._log.position + 1:
                raise self._log.error(position - 1, "it existed and has disappeared")
            if position <= self._log.position:
                return self._log.get(position) == data
            return self._log.append(batch, data)

    def upload(self, path: Path, name: str) -> None:
        """See TaskStorage.upload."""
        self.folder.store.put_file(self._object(name), path)

    def download(self, name: str, path: Path) -> None:
        """See TaskStorage.download."""
        key = self._object(name)
        try:
            size = self.folder.store.size(key)
            if size is None:
                raise ObjectNotFound(f"{self.folder.store.uri}/{key} does not exist")
            self.folder.store.get_file(key, path, size=size, crc32=None)
        except ObjectNotFound:
            self._confirm_not_lost()
            raise
        except CheckpointDamaged as error:
            raise StoreUnavailable(f"{error}: it was replaced during the read") from error

    def sizes(self, names: list[str]) -> list[int | None]:
        """See TaskStorage.sizes."""
        keys = [self._object(name) for name in names]
        with ThreadPoolExecutor(READERS) as pool:
            found = list(pool.map(self.folder.store.size, keys))
        if None in found:
            self._confirm_not_lost()
        return found

    def set_aside(self, name: str) -> None:
        """See TaskStorage.set_aside. A missing object is ignored."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            path = Path(scratch, "object")
            try:
                self.download(name, path)
            except ObjectNotFound:
                return
            key = self.folder.key(layout.TASK_DAMAGED + name)
            self.folder.store.put_file(key, path)
        self.folder.store.delete([self._object(name)])

    def names(self) -> list[str]:
        """The names of all objects."""
        found = self.folder.objects(layout.TASK_OBJECTS)
        return [item.key.removeprefix(layout.TASK_OBJECTS) for item in found]

    def delete(self, names: list[str]) -> None:
        """Remove objects, and unfinished uploads of killed writers. Call it only while no process
        writes; missing objects are ignored."""
        self.folder.store.delete([self._object(name) for name in names])
        with suppress(StoreError):  # some servers and accounts cannot list uploads
            self.folder.store.abort_uploads(self._object(""), of=lambda _key: True)

    def _read_on(self) -> None:
        self._batches.clear()
        self._log.read_on()

    def _unread(self) -> NumberedLog[bytes]:
        return NumberedLog(
            self.folder,
            layout.TASK_LOG,
            witness=layout.TASK_OBJECTS,
            read_checksummed=lambda data, key: read_checksummed_line(data, name=key),
            damaged=lambda what: TaskLogDamaged(f"{what}. {REMEDY.format(self.uri)}"),
            take=self._batches.append,
        )

    def _object(self, name: str) -> str:
        return self.folder.key(layout.TASK_OBJECTS + name)

    def _confirm_not_lost(self) -> None:
        with self._lock:
            self._check_not_lost(trusted_for=0.0)

    def _is_another(self) -> bool:
        """Whether the folder shows no attempt that could have run tasks."""
        return self.begun > 0 and all(number > self.begun for number in self.folder.attempts())

    def _check_not_lost(self, *, trusted_for: float) -> None:
        """Check by its first batch that the log still exists: in another folder everything would
        look lost. Raises StoreUnavailable while the log may come back, then TaskLogMissing."""
        now = time.monotonic()
        self._log_existed = self._log_existed or self._log.position > 0
        if not (self._log_existed or self._is_another()) or (
            self._missing_since is None and now - self._last_present < trusted_for
        ):
            return
        if self._log.get(1) is not None:
            self._last_present, self._missing_since = now, None
            return
        self._missing_since = now if self._missing_since is None else self._missing_since
        what = f"{self.folder.uri}/{self._log.key(1)}: it existed and has disappeared"
        if now - self._missing_since < self._patience:
            raise StoreUnavailable(f"{what}. TrainRun keeps looking for {self._patience:.0f} s")
        raise TaskLogMissing(
            f"{what}. Check that the address and endpoint of the storage have not changed, or "
            "restore it from a copy or an older version; to compute everything again, "
            f"{self.recompute_remedy}"
        )
