"""The folder in which a program of tasks keeps its log and its results: `tasks/` of a run's.

Layer: above `NumberedLog`. Implements `trainrun.tasks.task_storage.TaskStorage` over a store.
Invariant: as long as it is in doubt whether the log is still there, nothing is said to be absent.
"""

from __future__ import annotations

import tempfile
import threading
import time
import zlib
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
"""Seconds for which a log that was there is believed to be there, while it is written."""
PATIENCE = 30.0
"""Seconds for which it must be gone: some servers do not find an object that was just written."""
CHUNK = 1 << 20
REMEDY = (
    "The log is the only record of what was done, so TrainRun will not guess what is missing: "
    "put it back from a copy or an older version, or delete {} to compute everything again"
)


class TaskFolder:
    """A `TaskStorage` over the folder of a run."""

    recompute_remedy = "begin a run with another spec.storage.runName"
    """How a person does that, where the store has forgotten everything."""

    def __init__(
        self, folder: RunStore, *, patience: float = PATIENCE, scratch: Path | None = None
    ) -> None:
        """`patience`: seconds before a log that is gone is given up; `scratch`: a folder for what
        is moved, None: the system's."""
        self.folder = folder
        self.begun = 0
        """See Answer.begun."""
        self._patience = patience
        self._scratch = scratch
        self._lock = threading.Lock()
        self._batches: list[bytes] = []
        """What was read last."""
        self._log = self._unread()
        self._log_existed = False
        """There is a log."""
        self._last_present = 0.0
        """When the log was found to be there, on the monotonic clock."""
        self._missing_since: float | None = None
        """Since when it is not."""

    @property
    def uri(self) -> str:
        """See Keep.uri."""
        return layout.tasks_uri(self.folder.uri)

    def read(self, after: int) -> list[bytes]:
        """See Keep.read."""
        with self._lock:
            self._check_not_lost(trusted_for=0.0)
            if after < self._log.position:
                self._log = self._unread()
            first = self._log.position
            self._read_on()
            return self._batches[max(0, after - first) :]

    def append(self, position: int, batch: bytes) -> bool:
        """See Keep.append. The batch is one line of JSON."""
        data = add_checksum_to_line(batch)
        with self._lock:
            self._check_not_lost(trusted_for=TRUSTED)
            if position > self._log.position + 1:
                self._read_on()
            if position > self._log.position + 1:
                raise self._log.error(position - 1, "it was there, and is gone")
            if position <= self._log.position:
                return self._log.get(position) == data
            return self._log.append(batch, data)

    def upload(self, path: Path, name: str) -> None:
        """See Keep.upload."""
        self.folder.store.put_file(self._object(name), path, crc32=_crc32(path))

    def download(self, name: str, path: Path) -> None:
        """See Keep.download."""
        key = self._object(name)
        try:
            size = self.folder.store.size(key)
            if size is None:
                raise ObjectNotFound(f"{self.folder.store.uri}/{key} is not there")
            self.folder.store.get_file(key, path, size=size, crc32=None)
        except ObjectNotFound:
            self._confirm_not_lost()
            raise
        except CheckpointDamaged as error:
            raise StoreUnavailable(f"{error}: it was replaced while it was read") from error

    def sizes(self, names: list[str]) -> list[int | None]:
        """See Keep.sizes."""
        keys = [self._object(name) for name in names]
        with ThreadPoolExecutor(READERS) as pool:
            found = list(pool.map(self.folder.store.size, keys))
        if None in found:
            self._confirm_not_lost()
        return found

    def set_aside(self, name: str) -> None:
        """See Keep.set_aside. One that is not there is fine."""
        with tempfile.TemporaryDirectory(dir=self._scratch) as scratch:
            path = Path(scratch, "object")
            try:
                self.download(name, path)
            except ObjectNotFound:
                return
            key = self.folder.key(layout.TASK_DAMAGED + name)
            self.folder.store.put_file(key, path, crc32=_crc32(path))
        self.folder.store.delete([self._object(name)])

    def names(self) -> list[str]:
        """All objects that there are."""
        found = self.folder.objects(layout.TASK_OBJECTS)
        return [item.key.removeprefix(layout.TASK_OBJECTS) for item in found]

    def delete(self, names: list[str]) -> None:
        """Remove objects, and what writers that were killed have left: only while nobody writes.
        Those that are not there are fine."""
        self.folder.store.delete([self._object(name) for name in names])
        with suppress(StoreError):  # not every server, nor every account, may list them
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
        """Whether it shows no attempt that can have done tasks."""
        return self.begun > 0 and all(number > self.begun for number in self.folder.attempts())

    def _check_not_lost(self, *, trusted_for: float) -> None:
        """The first batch tells whether this is still the folder in which the log was: in another
        one everything would seem to be lost. Raises TaskLogMissing; StoreUnavailable while it may
        be there after all."""
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
        what = f"{self.folder.uri}/{self._log.key(1)}: it was there, and is gone"
        if now - self._missing_since < self._patience:
            raise StoreUnavailable(f"{what}. TrainRun looks again for {self._patience:.0f} s")
        raise TaskLogMissing(
            f"{what}. Check that address and endpoint of the storage are those of before, or put "
            f"it back from a copy or an older version; to compute everything again, "
            f"{self.recompute_remedy}"
        )


def _crc32(path: Path) -> int:
    crc32 = 0
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            crc32 = zlib.crc32(data, crc32)
    return crc32
