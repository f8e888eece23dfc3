"""Object storage in Google Cloud Storage and Azure Blob Storage.

Layer: implements `ObjectStore`; the only module that imports obstore, a compiled library (extra
`stores`). Invariants: every request has timeouts and is retried a few times by the library, so a
call ends within minutes even if the network hangs; at most CONNECTIONS parts are in memory or in
transit on their way up. The library sends no checksums, so TLS alone protects what is sent; a
file's CRC32 is compared while it is read, on both ways.
"""

from __future__ import annotations

import contextlib
import re
import threading
import zlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore

from trainrun.checkpoint.selection import ObjectInfo
from trainrun.checkpoint.stores import ranges
from trainrun.checkpoint.stores.cloud_errors import explain
from trainrun.checkpoint.stores.parts import CONNECTIONS, PART, Stream, part_size
from trainrun.checkpoint.stores.ranges import DripDetector, fetch_file
from trainrun.checkpoint.stores.store import (
    Progress,
    Range,
    changed,
    changed_file,
    check_crc32,
    check_key,
    other_size,
    probe_put_if_absent,
)
from trainrun.errors import (
    ObjectNotFound,
    StoreMisconfigured,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "3m"}
"""To connect, without a byte of the response, and of a whole request with at most one part."""

RETRIES = 2
"""Times that the library repeats a request, with pauses of some hundred milliseconds."""

CONFLICT_TRIES = 10
"""Tries of a conditional write whose object keeps disappearing."""

_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f\\]")
"""The library refuses control characters, and takes a backslash for a slash."""


class CloudStore:
    """An `ObjectStore` in a bucket of Google Cloud Storage (`gs`) or a container of Azure (`az`).

    Credentials come from the environment, or from this machine's or pod's identity.
    """

    def __init__(
        self, scheme: str, bucket: str, prefix: str, *, uri: str, endpoint_url: str | None = None
    ) -> None:
        self.scheme = scheme
        self.bucket = bucket
        self.prefix = f"{prefix}/" if prefix else ""
        self.uri = uri
        """The address as the user wrote it."""
        self._endpoint_url = endpoint_url
        self._limit = threading.BoundedSemaphore(CONNECTIONS)
        self._reads = threading.BoundedSemaphore(ranges.CONNECTIONS)
        self._pace = DripDetector()
        self._large_file = threading.Lock()
        self._cached_client: GCSStore | AzureStore | None = None

    def put(self, key: str, data: bytes) -> None:
        """See ObjectStore.put."""
        with self._explained("write", key) as path:
            obstore.put(self._client, path, data, use_multipart=False)

    def put_file(
        self, key: str, path: Path, *, crc32: int | None = None, progress: Progress | None = None
    ) -> int:
        """See ObjectStore.put_file."""
        size = path.stat().st_size
        parts = _SummedParts(path, crc32=crc32, progress=progress)
        if size <= PART:
            with self._limit:
                self.put(key, b"".join(parts))
            return parts.found
        # One large file at a time: the library sends its parts in parallel.
        with self._large_file, self._explained("write", key) as target:
            obstore.put(
                self._client,
                target,
                parts,
                chunk_size=part_size(size),
                max_concurrency=CONNECTIONS,
            )
        return parts.found

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """See ObjectStore.put_if_absent."""
        for _ in range(CONFLICT_TRIES):
            with self._explained("write", key) as path:
                try:
                    obstore.put(self._client, path, data, mode="create", use_multipart=False)
                    return True
                except (AlreadyExistsError, PreconditionError):
                    # Possibly ours: the library repeats a request whose response was lost.
                    with contextlib.suppress(ObjectNotFound):  # deleted in between: try again
                        return self.get(key) == data
        raise StoreUnavailable(f"cannot write {self._name(key)}: other writers keep overwriting it")

    def get(self, key: str) -> bytes:
        """See ObjectStore.get."""
        with self._explained("read", key) as path:
            return obstore.get(self._client, path).bytes().to_bytes()

    def size(self, key: str) -> int | None:
        """See ObjectStore.size."""
        with contextlib.suppress(ObjectNotFound), self._explained("read", key) as path:
            return obstore.head(self._client, path)["size"]
        return None

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
        """See ObjectStore.get_file."""
        name = self._name(key)
        if size == 0:
            if there := len(self.get(key)):
                raise other_size(name, there, size)
            path.write_bytes(b"")
            return

        def open_range(start: int, count: int) -> AbstractContextManager[Stream]:
            return self._open_range(key, start, count, size=size, tag=tag)

        found = fetch_file(
            path, size, open_range, ranges, name=name, limit=self._reads, pace=self._pace
        )
        check_crc32(name, found, crc32)

    def list(self, prefix: str) -> list[ObjectInfo]:
        """See ObjectStore.list."""
        whole, start = self.prefix + prefix, len(self.prefix)
        with self._explained("list", prefix, is_key=False):
            found = [
                ObjectInfo(
                    key=item["path"][start:],
                    size=item["size"],
                    modified=item["last_modified"].timestamp(),
                    tag=_tag(item),
                )
                for page in obstore.list(self._client, whole or None)
                for item in page
                if item["path"].startswith(whole)  # not the folder itself, which some tools create
            ]
        return sorted(found, key=lambda item: item.key)

    def folders(self, within: str = "") -> tuple[str, ...]:
        """See BrowsableStore.folders."""
        whole = self.prefix + within
        with self._explained("list", within, is_key=False):
            found = obstore.list_with_delimiter(self._client, whole or None)
        names = (prefix[len(whole) :].rstrip("/") for prefix in found["common_prefixes"])
        return tuple(sorted(names))

    def delete(self, keys: Iterable[str]) -> None:
        """See ObjectStore.delete."""
        paths = [self._path(key) for key in keys]
        with self._explained("delete from", "", is_key=False):
            try:
                obstore.delete(self._client, paths)
            except FileNotFoundError:  # the library stops there
                for path in paths:
                    with contextlib.suppress(FileNotFoundError):
                        obstore.delete(self._client, path)

    def abort_uploads(self, prefix: str, *, of: Callable[[str], bool]) -> None:
        """See ObjectStore.abort_uploads.

        Does nothing: the library cannot list them. Azure removes them after a week, Google by a
        lifecycle rule of the bucket.
        """

    def close(self) -> None:
        """See ObjectStore.close."""
        self._cached_client = None

    def probe(self) -> None:
        """See ObjectStore.probe."""
        probe_put_if_absent(
            self,
            otherwise="the server overwrote an existing object despite a condition, so a claim "
            "cannot be written exactly once. Use Google Cloud Storage or Azure itself",
        )

    # ---------------------------------------------------------------- details

    @property
    def _client(self) -> GCSStore | AzureStore:
        client = self._cached_client
        if client is None:  # two threads may each make one, which does no harm
            client = self._cached_client = self._connect()
        return client

    def _connect(self) -> GCSStore | AzureStore:
        options: dict[str, Any] = {
            "client_options": {**TIMEOUTS, "allow_http": True},  # where the endpoint says so
            "retry_config": {"max_retries": RETRIES, "retry_timeout": timedelta(minutes=3)},
        }
        if self._endpoint_url is not None:
            options["base_url" if self.scheme == "gs" else "endpoint"] = self._endpoint_url
        store = GCSStore if self.scheme == "gs" else AzureStore
        return store(self.bucket, **options)

    def _path(self, key: str) -> str:
        path = self.prefix + check_key(key)
        if _NOT_IN_NAMES.search(path):
            raise StoreMisconfigured(
                f"cannot use {self._name(key)!r}: {self.scheme}:// has no backslashes and control "
                "characters in names; rename the file"
            )
        return path

    def _name(self, key: str) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}{key}".rstrip("/")

    @contextlib.contextmanager
    def _open_range(
        self, key: str, start: int, count: int, *, size: int, tag: str
    ) -> Iterator[Stream]:
        with self._explained("read", key) as path:
            bounds = (start, start + count)
            answer = obstore.get(self._client, path, options={"range": bounds})
            there = answer.meta["size"]
            if there != size:
                raise other_size(self._name(key), there, size)
            if tag and _tag(answer.meta) != tag:
                raise changed(self._name(key))
            yield _Chunks(answer.stream(min_chunk_size=ranges.BUFFER))

    @contextlib.contextmanager
    def _explained(self, verb: str, key: str, *, is_key: bool = True) -> Iterator[str]:
        """Give the object's path; turn the library's exceptions into StoreErrors with a remedy."""
        path = self._path(key) if is_key else ""
        try:
            yield path
        except (BaseError, FileNotFoundError, ValueError) as error:
            raise explain(
                f"cannot {verb} {self._name(key)}",
                str(error),
                scheme=self.scheme,
                bucket=self.bucket,
            ) from error


class _SummedParts:
    """The bytes of a file, summed while they are read."""

    def __init__(self, path: Path, *, crc32: int | None, progress: Progress | None) -> None:
        self._path = path
        self._crc32 = crc32
        self._progress = progress
        self.found = 0
        """The CRC32 of what was read."""

    def __iter__(self) -> Iterator[bytes]:
        """Raises StoreError at the end when the file does not have the given `crc32`, which keeps
        the library from completing the object."""
        with self._path.open("rb") as source:
            while data := source.read(PART):
                self.found = zlib.crc32(data, self.found)
                yield data
                if self._progress is not None:
                    self._progress(len(data))
        if self._crc32 not in (None, self.found):
            raise changed_file(self._path)


class _Chunks:
    """A `Stream` of what the library brings."""

    def __init__(self, chunks: obstore.BytesStream) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def read_into(self, buffer: memoryview, /) -> int:
        """See Stream.read_into."""
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        data, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _tag(meta: Any) -> str:
    # Azure quotes it in answers and not in listings.
    return (meta["e_tag"] or "").strip('"')
