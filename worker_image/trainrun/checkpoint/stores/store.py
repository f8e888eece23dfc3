"""The interface of object storage: a few calls, on keys relative to one URI.

Layer: the bottom of `trainrun.checkpoint`; `file.py`, `s3.py` and `cloud.py` implement it.
Invariants of every implementation:

- an object is either absent or whole: no reader ever sees half of one;
- the effect of a call that returned is durable; a call that raised may or may not have taken
  effect;
- failures are `trainrun.errors.StoreError`, never errors of a library or the operating system.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from trainrun.checkpoint.selection import ObjectInfo
from trainrun.errors import (
    CheckpointDamaged,
    ObjectTooLarge,
    PutIfAbsentUnsupported,
    StoreError,
    StoreUnavailable,
)

Range = tuple[int, int]
"""Offset and number of bytes."""

Progress = Callable[[int], None]
"""Called with the number of bytes just moved, from any thread; may raise to cancel."""


class ObjectStore(Protocol):
    """Storage under one URI. Keys are `/`-separated, relative, without empty or dot parts."""

    @property
    def uri(self) -> str:
        """The address as the user wrote it, without a slash at the end."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write a small object, replacing any that exists."""
        ...

    def put_file(
        self, key: str, path: Path, *, crc32: int | None = None, progress: Progress | None = None
    ) -> int:
        """Write an object from a local file, replacing any that exists; return its CRC32.

        Raises StoreError when the file no longer has the given `crc32` (None: not known yet).
        """
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object unless it exists.

        True: the object now holds exactly `data` (also when an earlier try of ours wrote it).
        False: it holds something else, which stays.
        """
        ...

    def get(self, key: str) -> bytes:
        """Read a small object. Raises ObjectNotFound, and ObjectTooLarge where it was opened with
        a limit."""
        ...

    def size(self, key: str) -> int | None:
        """Bytes of an object, looked up by name; None: it does not exist."""
        ...

    def get_file(
        self,
        key: str,
        path: Path,
        *,
        size: int,
        crc32: int | None,
        tag: str = "",
        ranges: Sequence[Range] = (),
    ) -> None:
        """Read an object of `size` bytes into a new local file; large ones in parallel ranges.

        `ranges`: only these, each at its place and with holes between them; empty: all bytes.
        Raises CheckpointDamaged when size or CRC32 differ (`None`: unknown, not checked),
        StoreUnavailable when it is not the version that a listing showed with this `tag` (empty:
        any version), ObjectNotFound, and OSError for errors of the local file.
        """
        ...

    def list(self, prefix: str) -> list[ObjectInfo]:
        """All objects whose key starts with `prefix` (empty, or ending in `/`), sorted by key."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; missing ones are ignored."""
        ...

    def abort_uploads(self, prefix: str, *, of: Callable[[str], bool]) -> None:
        """Abort the unfinished uploads to keys below `prefix` for which `of` holds.

        Killed writers leave them behind, invisible and billed.
        """
        ...

    def close(self) -> None:
        """Close all connections; a later call opens new ones."""
        ...

    def probe(self) -> None:
        """Prepare the store and test put-if-absent with real requests.

        Raises PutIfAbsentUnsupported, StoreDenied, StoreMisconfigured or StoreUnavailable.
        """
        ...


class BrowsableStore(ObjectStore, Protocol):
    """A store that can also be looked into from the top, as people do."""

    def folders(self, within: str = "") -> tuple[str, ...]:
        """The names right below the URI that have objects below them, sorted; below this folder of
        it, which ends in `/`."""
        ...


def changed(name: str) -> StoreUnavailable:
    """The error for an object that is not the version that the listing showed."""
    return StoreUnavailable(f"{name} was overwritten after it was listed; TrainRun lists it again")


def other_size(name: str, there: object, size: int) -> CheckpointDamaged:
    """The error for an object that has `there` bytes instead of `size`."""
    return CheckpointDamaged(f"{name}: {there} bytes, should be {size}")


def check_largest(name: str, size: int, largest: int | None) -> None:
    """Raise ObjectTooLarge for an object of more bytes than `largest` (None: any)."""
    if largest is not None and size > largest:
        raise ObjectTooLarge(
            f"{name} has {size} bytes, and at most {largest} are read here. No record of a run is "
            "so large: delete it, or name another folder"
        )


def check_crc32(name: str, found: int, crc32: int | None) -> None:
    """Raise CheckpointDamaged if what was read has another checksum than `crc32` (None: any)."""
    if crc32 is not None and crc32 != found:
        raise CheckpointDamaged(
            f"{name}: CRC32 {found:08x}, should be {crc32:08x}: its content changed"
        )


def changed_file(path: Path) -> StoreError:
    """The error for a local file that is not what it was when its upload began."""
    return StoreError(
        f"{path} changed while it was being uploaded; write new files for each checkpoint"
    )


def probe_put_if_absent(store: ObjectStore, *, otherwise: str) -> None:
    """Test put-if-absent on a fresh key. Raises PutIfAbsentUnsupported with the text `otherwise`,
    and what the store's own calls raise."""
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
    """Return `key`; raises ValueError for a key that could escape the store or name no object."""
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in key or os.sep != "/":
        raise ValueError(f"not an object key: {key!r}")
    return key
