"""What the checkpoint code asks of object storage: eight calls, on keys relative to one URI.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from trainrun.errors import PutIfAbsentUnsupported, StoreError, StoreMisconfigured

Progress = Callable[[int], None]
"""Called with the number of bytes just moved, from any thread; may raise to give up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """One row of a listing."""

    key: str
    """Relative to the store's URI."""
    size: int
    """Bytes."""
    modified: float = 0.0
    """Seconds since the epoch by the store's clock: shown to people, never decided upon."""
    tag: str = ""
    """Changes when the content does (S3: ETag); tells a cached copy of a foreign file as old."""


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

    def get_file(self, key: str, path: Path, *, size: int, crc32: int | None) -> None:
        """Read an object of `size` bytes into a new local file, in parallel ranges where large.

        Raises CheckpointDamaged when size or CRC32 differ (`None`: unknown, not checked),
        ObjectNotFound, and OSError for trouble with the local file.
        """
        ...

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Everything whose key starts with `prefix` (empty, or ending in `/`), sorted by key."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are fine."""
        ...

    def close(self) -> None:
        """Let connections go; a later call opens new ones."""
        ...

    def probe(self) -> None:
        """Make the store ready and try put-if-absent for real.

        Raises PutIfAbsentUnsupported, StoreDenied, StoreMisconfigured or StoreUnavailable.
        """
        ...


def open_store(
    uri: str, *, endpoint_url: str | None = None, region: str | None = None
) -> ObjectStore:
    """Return the store for `file:///absolute/path` or `s3://bucket/prefix`, without any I/O.

    `endpoint_url` and `region` matter to s3 only; absent, boto3's usual sources decide.
    Raises StoreMisconfigured for an address of another form.
    """
    parts = urlsplit(uri)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise StoreMisconfigured(f"{uri}: a file URI is file:///absolute/path (three slashes)")
        # Here, not above: both modules import this one.
        from trainrun.checkpoint.file import FileStore  # noqa: PLC0415

        return FileStore(Path(unquote(parts.path)), uri=uri.rstrip("/"))
    if parts.scheme == "s3":
        if not parts.netloc:
            raise StoreMisconfigured(f"{uri}: the bucket is missing; write s3://bucket/prefix")
        from trainrun.checkpoint.s3 import S3Store  # noqa: PLC0415

        prefix = uri.split("://", 1)[1].partition("/")[2].strip("/")
        return S3Store(
            parts.netloc, prefix, uri=uri.rstrip("/"), endpoint_url=endpoint_url, region=region
        )
    raise StoreMisconfigured(
        f"{uri}: only file:///absolute/path and s3://bucket/prefix are supported"
    )


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
