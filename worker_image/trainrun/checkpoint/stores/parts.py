"""Transfer of large files from an S3 server, several parts in parallel; what both ways share.

Layer: local files and threads; `s3.py` owns the client and maps its exceptions; `sending.py` is
the way up. Invariants: at most CONNECTIONS parts of a store are in memory or in transit, however
many files move; the first failure stops the rest; a download's checksum is computed in order while
later parts are still in transit; a range of an object with another size is refused.
"""

from __future__ import annotations

import base64
import contextlib
import os
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trainrun.checkpoint.stores.store import changed
from trainrun.errors import CheckpointDamaged, StoreUnavailable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")

Client = Any
"""boto3 builds its client classes at run time: there is no type to name."""

FILES = 4
"""Files in transit at once, up or down; large ones are also split into parts."""

PART = 8 << 20
"""Bytes of a part: large enough that a request costs little (within a tenth of the throughput of
32 MiB), small enough that CONNECTIONS of them fit an agent's memory."""

CONNECTIONS = 8
"""Parts in transit at once: a typical object store gives 60 MB/s per connection."""

MOST_PARTS = 9_000
"""S3 allows 10,000 parts per object: larger objects are split into larger parts."""

BUFFER = 1 << 20
"""Bytes read at a time while a checksum is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A range of a file."""

    number: int
    """Counted from 1."""
    start: int
    size: int
    """Bytes."""


def cut(size: int) -> list[Part]:
    """Split `size` bytes into parts."""
    step = max(PART, -(-size // MOST_PARTS))
    return [
        Part(number=number, start=start, size=min(step, size - start))
        for number, start in enumerate(range(0, size, step), 1)
    ]


def fetch_parts(
    path: Path, size: int, fetch: Callable[[Part, int], None], *, limit: threading.Semaphore
) -> int:
    """Fill a new file of `size` bytes part by part; return its CRC32.

    `fetch` receives a part and the file descriptor to write it to, at the part's offset. Raises
    what `fetch` raises, and OSError for errors of the file.
    """
    crc32 = 0
    with path.open("w+b", buffering=0) as target:

        def move(part: Part) -> None:
            with limit:
                fetch(part, target.fileno())

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            parts = cut(size)
            futures = [pool.submit(move, part) for part in parts]
            for part, _ in zip(parts, in_order(pool, futures), strict=True):
                crc32 = _checksum(target.fileno(), part, crc32)
    return crc32


def in_order(pool: ThreadPoolExecutor, futures: Sequence[Future[T]]) -> Iterator[T]:
    """The results in order; raises the first failure and cancels what has not begun."""
    try:
        for future in futures:
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _checksum(descriptor: int, part: Part, crc32: int) -> int:
    for start in range(part.start, part.start + part.size, BUFFER):
        count = min(BUFFER, part.start + part.size - start)
        crc32 = zlib.crc32(os.pread(descriptor, count, start), crc32)
    return crc32


class Body(Protocol):
    """The body of a response, read as a stream."""

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill the buffer as far as possible; 0 at the end."""
        ...


def encode_crc32(crc32: int) -> str:
    """CRC32 as the protocol requires it: big endian, base64."""
    return base64.b64encode(crc32.to_bytes(4, "big")).decode()


def required_field(answer: Mapping[str, Any], field: str, *, name: str) -> str:
    """A field that the server must return; raises StoreUnavailable where it is missing."""
    if field not in answer:
        raise StoreUnavailable(
            f"cannot write {name}: the response has no {field}; is a proxy answering for the store?"
        )
    return str(answer[field])


def abort_uploads(
    client: Client, bucket: str, prefix: str, of: Callable[[str], bool], but: str = ""
) -> None:
    """Abort unfinished uploads below `prefix` to keys for which `of` holds, except the id `but`.

    Raises what the client raises.
    """
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
    for item in (item for page in pages for item in page.get("Uploads", ())):
        if of(item["Key"]) and item["UploadId"] != but:
            client.abort_multipart_upload(Bucket=bucket, Key=item["Key"], UploadId=item["UploadId"])


def fetch_range(
    client: Client,
    where: Mapping[str, str],
    part: Part,
    target: int,
    *,
    size: int,
    tag: str,
    name: str,
) -> None:
    """Write one range of an object of `size` bytes to its offset in the file `target`.

    Raises CheckpointDamaged when the object has another size, StoreUnavailable when the response
    has another range or version (`tag`; empty: any) or ends too early, OSError for errors of the
    file, and what the client raises.
    """
    bounds = f"{part.start}-{part.start + part.size - 1}"
    version = {"IfMatch": tag} if tag else {}
    answer = client.get_object(**where, **version, Range=f"bytes={bounds}")
    # A server that ignores the range sends the whole object.
    length = answer.get("ContentLength", 0)
    given = answer.get("ContentRange", f"bytes 0-{length - 1}/{length}")
    with contextlib.closing(answer["Body"]) as body:
        there = given.rpartition("/")[2]
        if there != str(size):
            raise CheckpointDamaged(f"{name}: {there} bytes, should be {size}")
        if given != f"bytes {bounds}/{size}":
            raise StoreUnavailable(
                f"cannot read {name}: requested bytes {bounds}, received {given}"
            )
        if tag and answer.get("ETag", tag) != tag:  # a server that ignores the condition
            raise changed(name)
        _receive(body, part, target, name=name)


def _receive(body: Body, part: Part, target: int, *, name: str) -> None:
    buffer = memoryview(bytearray(min(BUFFER, part.size)))
    position, end = part.start, part.start + part.size
    while position < end:
        count = body.readinto(buffer[: end - position])
        if count == 0:
            raise StoreUnavailable(f"cannot read {name}: the response ended too early")
        _write(target, buffer[:count], position)
        position += count


def _write(target: int, data: memoryview, position: int) -> None:
    while data:
        count = os.pwrite(target, data, position)
        data, position = data[count:], position + count
