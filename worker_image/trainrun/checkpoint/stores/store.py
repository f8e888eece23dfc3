"""What the checkpoint code asks of object storage: a few calls, on keys relative to one URI.

Layer: the bottom of `trainrun.checkpoint`; `file.py` and `s3.py` implement the protocol. Invariants
that every implementation keeps:

- an object is either absent or whole: no reader ever sees half of one;
- a call that returned has happened durably; a call that raised may or may not have happened;
- failures are `trainrun.errors.StoreError`, never those of a library or of the operating system.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from trainrun.checkpoint.selection import ObjectInfo
from trainrun.errors import PutIfAbsentUnsupported, StoreError, StoreUnavailable

Progress = Callable[[int], None]
"""Called with the number of bytes just moved, from any thread; may raise to give up."""


class ObjectStore(Protocol):
    """Storage under one URI. Keys are `/`-separated, relative, without empty or dot parts."""

    @property
    def uri(self) -> str:
        """The address as the user wrote it, without a slash at the end."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write a small object, replacing what is there."""
        ...

    def put_file(
        self, key: str, path: Path, *, crc32: int, progress: Progress | None = None
    ) -> None:
        """Write an object from a local file whose CRC32 is known; replaces what is there.

        Raises StoreError when the file no longer has that checksum.
        """
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object only where none is.

        True: the object holds exactly `data` now (also when an earlier try of ours had put it
        there). False: it holds something else, which stays.
        """
        ...

    def get(self, key: str) -> bytes:
        """Read a small object. Raises ObjectNotFound."""
        ...

    def size(self, key: str) -> int | None:
        """Bytes of an object that is asked for by its name; None: it is not there."""
        ...

    def get_file(
        self, key: str, path: Path, *, size: int, crc32: int | None, tag: str = ""
    ) -> None:
        """Read an object of `size` bytes into a new local file, in parallel ranges where large.

        Raises CheckpointDamaged when size or CRC32 differ (`None`: unknown, not checked),
        StoreUnavailable when it is not the version that a listing showed with this `tag` (empty:
        any will do), ObjectNotFound, and OSError for trouble with the local file.
        """
        ...

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Everything whose key starts with `prefix` (empty, or ending in `/`), sorted by key."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are fine."""
        ...

    def abort_uploads(self, prefix: str, *, of: Callable[[str], bool]) -> None:
        """Give up the unfinished uploads to keys below `prefix` for which `of` holds.

        Writers that were killed leave them behind, unseen and paid for.
        """
        ...

    def close(self) -> None:
        """Let connections go; a later call opens new ones."""
        ...

    def probe(self) -> None:
        """Make the store ready and try put-if-absent for real.

        Raises PutIfAbsentUnsupported, StoreDenied, StoreMisconfigured or StoreUnavailable.
        """
        ...


def changed(name: str) -> StoreUnavailable:
    """What is raised when an object is another version than the listing showed."""
    return StoreUnavailable(f"{name} was overwritten after it was listed: it is listed again")


def probe_put_if_absent(store: ObjectStore, *, otherwise: str) -> None:
    """Try put-if-absent on a key of its own; raises PutIfAbsentUnsupported saying `otherwise`, and
    what the store's own calls raise."""
    key = f".probe-{secrets.token_hex(8)}"
    try:
        first = store.put_if_absent(key, b"1")
        second = store.put_if_absent(key, b"2")
    finally:
        with contextlib.suppress(StoreError):
            store.delete([key])
    if not first or second:
        raise PutIfAbsentUnsupported(f"{store.uri}: {otherwise}")


def check_key(key: str) -> str:
    """Return `key`; raises ValueError for one that could leave the store or name no object."""
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in key or os.sep != "/":
        raise ValueError(f"not an object key: {key!r}")
    return key
