"""What uploads to an S3 server and downloads from it share: parts, checksums, ranges of an object.

Layer: threads; `s3.py` owns the client and maps its exceptions, `sending` is the way up, `ranges`
the way down. Invariant: a range of an object with another size is refused.
"""

from __future__ import annotations

import base64
import contextlib
import functools
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trainrun.checkpoint.stores.store import changed, other_size
from trainrun.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")

Client = Any
"""boto3 builds its client classes at run time: there is no type to name."""

PART = 8 << 20
"""Bytes of a part: large enough that a request costs little (within a tenth of the throughput of
32 MiB), small enough that CONNECTIONS of them fit an agent's memory."""

CONNECTIONS = 8
"""Parts in transit at once: a typical object store gives 60 MB/s per connection."""

CONNECT_TIMEOUT = 5.0
"""Seconds to connect: a server in the same region answers in milliseconds."""

SILENCE = 20.0
"""Seconds without a byte in the middle of a download, before another connection is tried."""

MOST_PARTS = 9_000
"""S3 allows 10,000 parts per object: larger objects are split into larger parts."""

_POLYNOMIAL = 0xEDB88320
"""That of CRC32, the coefficient of x**0 in the highest bit, as in all numbers of `combine`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A range of a file."""

    number: int
    """Counted from 1."""
    start: int
    size: int
    """Bytes."""


def part_size(size: int) -> int:
    """Bytes of each part of an upload of `size` bytes, but the last."""
    return max(PART, -(-size // MOST_PARTS))


def cut(size: int, step: int) -> list[Part]:
    """Split `size` bytes into parts of `step` bytes."""
    return [
        Part(number=number, start=start, size=min(step, size - start))
        for number, start in enumerate(range(0, size, step), 1)
    ]


def in_order(pool: ThreadPoolExecutor, futures: Sequence[Future[T]]) -> Iterator[T]:
    """The results in order; raises the first failure and cancels what has not begun."""
    try:
        for future in futures:
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class Stream(Protocol):
    """The bytes of one range, in order."""

    def read_into(self, buffer: memoryview, /) -> int:
        """Put what has arrived into the buffer; return its bytes. Waits for the first; 0: the
        end."""
        ...


class ReadStream:
    """A `Stream` of a library's body that only returns bytes."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """`read`: returns what has arrived, at most so many bytes; waits for the first."""
        self._read = read

    def read_into(self, buffer: memoryview, /) -> int:
        """See Stream.read_into."""
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


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


@contextlib.contextmanager
def request_range(
    client: Client,
    where: Mapping[str, str],
    start: int,
    count: int,
    *,
    size: int,
    tag: str,
    name: str,
) -> Iterator[Stream]:
    """Request `count` bytes from `start` of an object of `size` bytes.

    Raises CheckpointDamaged when the object has another size, StoreUnavailable when the response
    has another range or version (`tag`; empty: any), and what the client raises.
    """
    bounds = f"{start}-{start + count - 1}"
    version = {"IfMatch": tag} if tag else {}
    answer = client.get_object(**where, **version, Range=f"bytes={bounds}")
    # A server that ignores the range sends the whole object.
    length = answer.get("ContentLength", 0)
    given = answer.get("ContentRange", f"bytes 0-{length - 1}/{length}")
    with contextlib.closing(answer["Body"]) as body:
        there = given.rpartition("/")[2]
        if there != str(size):
            raise other_size(name, there, size)
        if given != f"bytes {bounds}/{size}":
            raise StoreUnavailable(
                f"cannot read {name}: requested bytes {bounds}, received {given}"
            )
        if tag and answer.get("ETag", tag) != tag:  # a server that ignores the condition
            raise changed(name)
        body.set_socket_timeout(SILENCE)
        # The SDK's own methods wait until a buffer is full: that would hide a drip.
        yield ReadStream(body._raw_stream.read1)  # noqa: SLF001


def combine(first: int, second: int, size: int) -> int:
    """The CRC32 of two pieces of data from the CRC32 of each; `size`: bytes of the second.

    As `crc32_combine` of zlib, which Python does not offer.
    """
    return _times(_shift(size), first) ^ second


@functools.lru_cache(maxsize=64)
def _shift(size: int) -> int:
    """x to the power of 8 * `size`."""
    power, factor = 1 << 31, 1 << 23
    while size:
        if size & 1:
            power = _times(factor, power)
        factor, size = _times(factor, factor), size >> 1
    return power


def _times(one: int, other: int) -> int:
    """The product of two polynomials over GF(2), modulo that of CRC32."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product
