"""Volumes of a numbered log: each the copy of many records, for whoever reads them all.

Layer: above `RunStore`. A request for each record of a long log takes a restarted clerk half a
minute. Invariant: a volume is a copy and never the truth: where it does not fit its first and last
record, or cannot be read, the records are read.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainrun.contract import layout
from trainrun.errors import ObjectNotFound, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainrun.checkpoint.stores.run_store import RunStore

VOLUME = 256
"""Records in one: some 100 KiB of a sweep's."""

LARGEST = 8 << 20
"""Bytes from which one is full with fewer."""


@dataclass
class Binder:
    """Writes the volumes of a log that somebody reads or writes from its beginning."""

    folder: RunStore
    prefix: str
    """Of the log's keys."""
    size: int = VOLUME
    bound: int = 0
    """The last record that stands in a volume."""
    _loose: list[bytes] = field(default_factory=list)
    """The records behind it."""

    def take(self, data: bytes, *, bound: bool) -> None:
        """The next record; `bound`: it is the last one of a volume that is there."""
        self._loose.append(data)
        if bound:
            self.bound += len(self._loose)
            self._loose = []

    def bind(self) -> None:
        """Write those volumes whose records are all there. What cannot be written now is tried
        again the next time: nothing depends on it."""
        with suppress(StoreError):
            while count := self._full():
                last = self.bound + count
                key = layout.volume_key(self.prefix, self.bound + 1, last)
                data = b"".join(self._loose[:count])
                self.folder.store.put(self.folder.key(key), data)
                self.bound, self._loose = last, self._loose[count:]

    def _full(self) -> int:
        """How many records the next volume holds; 0: those that are there do not fill it."""
        total = 0
        for count, data in enumerate(self._loose, start=1):
            total += len(data)
            if count == self.size or total >= LARGEST:
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
        ends = [folder.store.get(folder.key(layout.record_key(prefix, it))) for it in at]
    except ObjectNotFound:
        return None
    records = copied.splitlines(keepends=True)
    fits = len(records) == len(positions) and [records[0], records[-1]] == ends
    return records if fits else None
