"""What a worker's ranks brought for a checkpoint, on its way to the store.

Layer: local files; no I/O with the store. Invariant: a name that some store could not hold is
refused here, with a message, instead of there, without one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun._common.tree import walk
from trainrun.contract.layout import unstorable
from trainrun.errors import CheckpointConflict, TransferCancelled

if TYPE_CHECKING:
    from trainrun._common.tree import TreeEntry
    from trainrun.checkpoint.rules.records import PartFile


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """What a rank brought for a checkpoint."""

    name: str
    """Relative path within the directory that the rank saved."""
    path: Path
    """Where it lies now."""
    rank: int
    """Global rank."""
    other: TreeEntry | None = None
    """The folder or link that it is; None: a file."""


class Upload:
    """One worker's part on its way: how far it is, and a way to give it up. Thread-safe.

    Passing the same object to a repeated `write_part` skips the files that have arrived.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._moved = 0
        self._arrived: dict[str, PartFile] = {}

    @property
    def bytes_moved(self) -> int:
        """Bytes sent so far, repeated ones included: grows while there is progress."""
        with self._lock:
            return self._moved

    def cancel(self) -> None:
        """Make the running call raise TransferCancelled within one chunk."""
        with self._lock:
            self._cancelled = True

    def advance(self, count: int) -> None:
        """Note progress. Raises TransferCancelled after `cancel`."""
        with self._lock:
            self._moved += count
            if self._cancelled:
                raise TransferCancelled("the upload was given up")

    def has_arrived(self, item: PartFile) -> bool:
        """Whether this very content has been stored by an earlier call."""
        with self._lock:
            return self._arrived.get(item.name) == item

    def note_arrival(self, item: PartFile) -> None:
        """Remember that a file is stored."""
        with self._lock:
            self._arrived[item.name] = item


def scan(directory: Path, *, rank: int) -> list[LocalFile]:
    """All files, folders and links below a directory, as brought by `rank`.

    Raises CheckpointConflict for names that no store can hold, OSError when it cannot be read.
    """
    found = []
    for entry in walk(directory):
        _check_name(entry.name, rank=rank)
        other = replace(entry, ranks=(rank,)) if entry.folder or entry.target else None
        path = directory / entry.name
        found.append(LocalFile(name=entry.name, path=path, rank=rank, other=other))
    return found


def _check_name(name: str, *, rank: int) -> None:
    if reason := unstorable(name):
        raise CheckpointConflict(f"rank {rank} brought {name!r}: {reason}")
