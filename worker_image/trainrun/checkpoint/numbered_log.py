"""A write-once log of numbered records in a folder; several processes may read and append.

Layer: above `RunStore`. Invariants: only a process that has read all earlier records writes record
n, and only if it does not exist; a missing or unreadable record is an error, never guessed.

One request per record of a long log would take a restarted clerk half a minute, so the folder also
has volumes, each a copy of many records. The records stay authoritative: if a volume does not match
its first and last record, or is unreadable, the records are read instead.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

from trainrun.checkpoint.run_store import READERS
from trainrun.contract import layout
from trainrun.errors import CheckpointDamaged, ObjectNotFound, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trainrun.checkpoint.run_store import RunStore

T = TypeVar("T")

VOLUME = 256
"""Records per volume: some 100 KiB for a sweep."""

LARGEST_VOLUME = 8 << 20
"""Bytes at which a volume is full with fewer records."""

IN_A_ROW = 16
"""Records that a thread reads in a row: handing one over costs more than reading it from disk."""


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[T]):
    """A record of the log."""

    record: T
    data: bytes
    """Its bytes in the store."""
    ends_volume: bool = False
    """It is the last record of a volume."""


@dataclass
class NumberedLog(Generic[T]):
    """A log, as far as this process has read it."""

    folder: RunStore
    prefix: str
    """Prefix of the keys of its records."""
    witness: str
    """If this prefix has objects but the log is empty, the log was deleted."""
    read_checksummed: Callable[[bytes, str], T]
    """Reads a record from the bytes at a key. Raises CheckpointDamaged."""
    damaged: Callable[[str], Exception]
    """Makes the error to raise, from the object and the reason."""
    take: Callable[[T], None]
    """Called with each record, in order."""
    volume: int = VOLUME
    """Records per volume."""
    position: int = 0
    """Position of the last record read or written."""
    _last_in_volume: int = 0
    """The last record that a volume contains."""
    _after_volumes: list[bytes] = field(default_factory=list)
    """The records after it."""

    def read_on(self) -> None:
        """Read all new records. Raises StoreError, and `damaged`."""
        if self.position == 0:
            # Read all before taking the first: a second call must not see a log that ends at a
            # hole.
            for listed in tuple(self._listed()):
                self._take(listed)
        # A listing may be late; a lookup by name is exact.
        while (data := self.get(position := self.position + 1)) is not None:
            self._take(self._stored(position, data))

    def read_before_damage(self) -> None:
        """Read the records before the first missing or damaged one; such a log must not be
        appended to. Raises StoreError, and `damaged` after the last good record."""
        for listed in self._listed():
            self._take(listed)
        self.read_on()

    def append(self, record: T, data: bytes) -> bool:
        """Write the next record, with its checksum as `data`; False: another process was faster, or
        may have been.

        Raises StoreError: the record may have been written anyway.
        """
        if not self.folder.put_once(self.key(self.position + 1), data):
            return False
        self._take(StoredRecord(record, data))
        self._write_full_volumes()
        return True

    def get(self, position: int) -> bytes | None:
        """The bytes of the record at this position; None: there is none."""
        try:
            return self.folder.store.get(self.folder.key(self.key(position)))
        except ObjectNotFound:
            return None

    def key(self, position: int) -> str:
        """The key of the record at this position."""
        return layout.record_key(self.prefix, position)

    def error(self, position: int, why: str) -> Exception:
        """The error of `damaged` for the record at this position."""
        return self.damaged(f"{self.folder.uri}/{self.key(position)}: {why}")

    def _check_begun(self) -> None:
        """Objects of a deleted log must not count as those of a new one."""
        # Look again: another process may have begun in between.
        if self.folder.objects(self.witness) and self.get(1) is None:
            raise self.error(1, f"it is missing, but {self.witness} exists")

    def _check_copies(self, keys: list[str], last: int) -> None:
        """A volume of deleted records would be used for the new records at their positions."""
        for copied in filter(None, map(layout.read_volume, keys)):
            if copied[-1] > last and self.get(copied[-1]) is None:
                copy = layout.volume_key(self.prefix, copied[0], copied[-1])
                raise self.error(
                    copied[-1],
                    f"it is missing, but {copy} holds a copy of it (to continue without the lost "
                    "records, also delete the copy)",
                )

    def _listed(self) -> Iterator[StoredRecord[T]]:
        """All records from the first one. Reads many in parallel: one after the other, a long log
        would take minutes from a distant store."""
        keys = [item.key for item in self.folder.objects(self.prefix)]
        last = max(filter(None, map(layout.read_number, keys)), default=0)
        if last == 0:
            self._check_begun()
        volumes = volumes_among(keys, last)
        ends = {positions[-1] for positions in volumes.values()}
        wanted = parts(volumes, last, size=min(IN_A_ROW, 1 + last // READERS))
        with ThreadPoolExecutor(READERS) as pool:
            found = chain.from_iterable(pool.map(lambda part: self._part(part, volumes), wanted))
            for position, data in enumerate(found, start=1):
                if data is None:
                    raise self.error(position, f"it is missing, but record {last} exists")
                yield self._stored(position, data, ends_volume=position in ends)
        self._check_copies(keys, last)

    def _part(self, positions: range, volumes: dict[int, range]) -> list[bytes | None]:
        """These records, from their volume if there is a usable one."""
        is_volume = positions.start in volumes
        copied = read_volume(self.folder, self.prefix, positions) if is_volume else None
        return [*copied] if copied else [self.get(position) for position in positions]

    def _stored(self, position: int, data: bytes, *, ends_volume: bool = False) -> StoredRecord[T]:
        """Decode and check a record. Reading threads do not call this: they would only contend."""
        key = self.key(position)
        try:
            return StoredRecord(self.read_checksummed(data, key), data, ends_volume=ends_volume)
        except CheckpointDamaged as error:
            own = self.get(position)  # if the bytes were a copy, only the copy may be damaged
            if own not in (None, data):
                return self._stored(position, own, ends_volume=ends_volume)
            raise self.error(position, str(error).removeprefix(f"{key}: ")) from error

    def _take(self, stored: StoredRecord[T]) -> None:
        self.position += 1
        self._after_volumes.append(stored.data)
        if stored.ends_volume:
            self._last_in_volume, self._after_volumes = self.position, []
        self.take(stored.record)

    def _write_full_volumes(self) -> None:
        """Write the volumes whose records are complete. A failed write is retried the next time:
        nothing depends on it."""
        with suppress(StoreError):
            while count := self._full_volume():
                last = self._last_in_volume + count
                data = b"".join(self._after_volumes[:count])
                key = layout.volume_key(self.prefix, self._last_in_volume + 1, last)
                self.folder.store.put(self.folder.key(key), data)
                self._last_in_volume, self._after_volumes = last, self._after_volumes[count:]

    def _full_volume(self) -> int:
        """Number of records in the next volume; 0: there are not enough to fill it."""
        total = 0
        for count, data in enumerate(self._after_volumes, start=1):
            total += len(data)
            if count == self.volume or total >= LARGEST_VOLUME:
                return count
        return 0


def volumes_among(keys: Iterable[str], last: int) -> dict[int, range]:
    """The records of each volume up to the record `last`, by their first record."""
    found = filter(None, map(layout.read_volume, keys))
    return {positions.start: positions for positions in found if positions[-1] <= last}


def parts(volumes: dict[int, range], last: int, *, size: int) -> Iterator[range]:
    """The records up to `last` in ranges: one per volume, and between them at most `size` each."""
    first = 1
    while first <= last:
        found = volumes.get(first)
        if found is None:
            behind = min((start for start in volumes if start > first), default=last + 1)
            found = range(first, min(first + size, behind))
        yield found
        first = found.stop


def read_volume(folder: RunStore, prefix: str, positions: range) -> list[bytes] | None:
    """The records of a volume; None: it does not match the records. Raises StoreError."""
    at = (positions.start, positions[-1])
    try:
        copied = folder.store.get(folder.key(layout.volume_key(prefix, *at)))
        ends = [
            folder.store.get(folder.key(layout.record_key(prefix, position))) for position in at
        ]
    except ObjectNotFound:
        return None
    records = copied.splitlines(keepends=True)
    fits = len(records) == len(positions) and [records[0], records[-1]] == ends
    return records if fits else None
