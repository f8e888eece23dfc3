"""Moving one large local file in several parts at once.

Layer: local files and threads; how a part travels is a function that `s3.py` gives. Invariants: at
most CONNECTIONS parts of a store are in memory or on their way, however many files move; the first
failure stops the rest; a download's checksum is computed in order while later parts are still
under way.
"""

from __future__ import annotations

import os
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from trainrun.errors import StoreError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

T = TypeVar("T")

FILES = 4
"""Files on their way at once, up or down; large ones are cut into parts besides."""

PART = 8 << 20
"""Bytes of a part: large enough that a request costs little (within a tenth of the throughput of
32 MiB), small enough that CONNECTIONS of them fit an agent's memory."""

CONNECTIONS = 8
"""Parts on their way at once: a typical object store gives 60 MB/s per connection."""

MOST_PARTS = 9_000
"""S3 allows 10,000 parts of an object: larger objects are cut into larger parts."""

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
    """Cut `size` bytes into parts."""
    step = max(PART, -(-size // MOST_PARTS))
    return [
        Part(number=number, start=start, size=min(step, size - start))
        for number, start in enumerate(range(0, size, step), 1)
    ]


def send_parts(
    path: Path, size: int, send: Callable[[Part, bytes], T], *, limit: threading.Semaphore
) -> list[T]:
    """Read and send all parts of a file; return what `send` returned, in order.

    Raises what `send` raises, StoreError when the file has become shorter.
    """
    with path.open("rb", buffering=0) as source:

        def move(part: Part) -> T:
            with limit:
                data = os.pread(source.fileno(), part.size, part.start)
                if len(data) != part.size:
                    raise StoreError(f"{path} changed while it was being uploaded")
                return send(part, data)

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            return list(in_order(pool, [pool.submit(move, part) for part in cut(size)]))


def fetch_parts(
    path: Path, size: int, fetch: Callable[[Part, int], None], *, limit: threading.Semaphore
) -> int:
    """Fill a new file of `size` bytes part by part; return its CRC32.

    `fetch` gets a part and the descriptor to write it to, at its place. Raises what `fetch` raises,
    OSError for trouble with the file.
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
    """The results in order; the first failure is raised, and what has not begun is given up."""
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
