"""A write-once log of numbered records in a folder: read on, written by whoever is first.

Layer: above `RunStore`. Invariants: record n is written only by somebody who has read all before
it, and only where none is; a log that has a hole, or a record that cannot be read, is never
guessed at.

A request for each record of a long log takes a restarted clerk half a minute, so volumes lie beside
it, each the copy of many records. A volume is never the truth: where it does not fit its first and
last record, or cannot be read, the records are read.
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
"""Records in one: some 100 KiB of a sweep's."""

LARGEST_VOLUME = 8 << 20
"""Bytes from which one is full with fewer."""

IN_A_ROW = 16
"""Records that a thread reads in a row: to hand one over costs more than to read it from a disk."""


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[T]):
    """A record of the log."""

    record: T
    data: bytes
    """As it stands in the store."""
    ends_volume: bool = False
    """It is the last one of a volume."""


@dataclass
class NumberedLog(Generic[T]):
    """A log, as far as this process has read it."""

    folder: RunStore
    prefix: str
    """Of the keys of its records."""
    witness: str
    """Where this prefix has objects, and the log is empty, the log has been taken away."""
    read_checksummed: Callable[[bytes, str], T]
    """A record from what stands at a key. Raises CheckpointDamaged."""
    damaged: Callable[[str], Exception]
    """What is raised about the log, from the object and the reason."""
    take: Callable[[T], None]
    """Is given each record, in order."""
    volume: int = VOLUME
    """Records that are copied into one object, for whoever reads them all."""
    position: int = 0
    """Of the last record that was read or written."""
    _last_in_volume: int = 0
    """The last record that stands in a volume."""
    _after_volumes: list[bytes] = field(default_factory=list)
    """The records behind it."""

    def read_on(self) -> None:
        """Everything that stands in the log now. Raises StoreError, and `damaged`."""
        if self.position == 0:
            # All of them before the first is taken: who asks again must not find a log that ends
            # where the hole is.
            for listed in tuple(self._listed()):
                self._take(listed)
        # A listing may be late; what is asked for by its name is there or not.
        while (data := self.get(position := self.position + 1)) is not None:
            self._take(self._stored(position, data))

    def read_before_damage(self) -> None:
        """What stands before the first record that is missing or damaged, which is never to be
        written after. Raises StoreError, and `damaged` after that."""
        for listed in self._listed():
            self._take(listed)
        self.read_on()

    def append(self, record: T, data: bytes) -> bool:
        """Write the next record, sealed as `data`; False: somebody was faster, or nothing is known
        of who was.

        Raises StoreError: then it may have been written all the same.
        """
        if not self.folder.put_once(self.key(self.position + 1), data):
            return False
        self._take(StoredRecord(record, data))
        self._write_full_volumes()
        return True

    def get(self, position: int) -> bytes | None:
        """The record at this position as it stands there; None: there is none."""
        try:
            return self.folder.store.get(self.folder.key(self.key(position)))
        except ObjectNotFound:
            return None

    def key(self, position: int) -> str:
        """Of the record at this position."""
        return layout.record_key(self.prefix, position)

    def error(self, position: int, why: str) -> Exception:
        """`damaged` about the record at this position."""
        return self.damaged(f"{self.folder.uri}/{self.key(position)}: {why}")

    def _check_begun(self) -> None:
        """What was written with a log that is gone must not be taken for that of a new one."""
        # Asked for once more: somebody may have begun between the two looks.
        if self.folder.objects(self.witness) and self.get(1) is None:
            raise self.error(1, f"it is missing, and {self.witness} is there")

    def _check_copies(self, keys: list[str], last: int) -> None:
        """A copy of records that are gone would be taken for one of those that follow."""
        for copied in filter(None, map(layout.read_volume, keys)):
            if copied[-1] > last and self.get(copied[-1]) is None:
                copy = layout.volume_key(self.prefix, copied[0], copied[-1])
                raise self.error(
                    copied[-1],
                    f"it is missing, and {copy} holds a copy of it (delete the copy, too, to go on "
                    "without the records that are lost)",
                )

    def _listed(self) -> Iterator[StoredRecord[T]]:
        """From the first one on. Many are read at once: one after the other a long log would take
        minutes from a distant store."""
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
                    raise self.error(position, f"it is missing, and record {last} is there")
                yield self._stored(position, data, ends_volume=position in ends)
        self._check_copies(keys, last)

    def _part(self, positions: range, volumes: dict[int, range]) -> list[bytes | None]:
        """These records, from their volume where there is one that can be used."""
        is_volume = positions.start in volumes
        copied = read_volume(self.folder, self.prefix, positions) if is_volume else None
        return [*copied] if copied else [self.get(position) for position in positions]

    def _stored(self, position: int, data: bytes, *, ends_volume: bool = False) -> StoredRecord[T]:
        """Not by the threads that read: they would only take turns, at a price."""
        key = self.key(position)
        try:
            return StoredRecord(self.read_checksummed(data, key), data, ends_volume=ends_volume)
        except CheckpointDamaged as error:
            own = self.get(position)  # where that was a copy, it may be the copy that is damaged
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
        """Write those volumes whose records are all there. What cannot be written now is tried
        again the next time: nothing depends on it."""
        with suppress(StoreError):
            while count := self._full_volume():
                last = self._last_in_volume + count
                data = b"".join(self._after_volumes[:count])
                key = layout.volume_key(self.prefix, self._last_in_volume + 1, last)
                self.folder.store.put(self.folder.key(key), data)
                self._last_in_volume, self._after_volumes = last, self._after_volumes[count:]

    def _full_volume(self) -> int:
        """How many records the next volume holds; 0: those that are there do not fill it."""
        total = 0
        for count, data in enumerate(self._after_volumes, start=1):
            total += len(data)
            if count == self.volume or total >= LARGEST_VOLUME:
                return count
        return 0


def volumes_among(keys: Iterable[str], last: int) -> dict[int, range]:
    """The records of each volume up to the record `last`, by the first."""
    found = filter(None, map(layout.read_volume, keys))
    return {positions.start: positions for positions in found if positions[-1] <= last}


def parts(volumes: dict[int, range], last: int, *, size: int) -> Iterator[range]:
    """The records up to `last`: those of each volume, and between them `size` at most in a row."""
    first = 1
    while first <= last:
        found = volumes.get(first)
        if found is None:
            behind = min((start for start in volumes if start > first), default=last + 1)
            found = range(first, min(first + size, behind))
        yield found
        first = found.stop


def read_volume(folder: RunStore, prefix: str, positions: range) -> list[bytes] | None:
    """The records of a volume; None: it is not a copy of them. Raises StoreError."""
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
