"""Reads an object in ranges over several connections, straight into a local file.

Layer: local files and threads; a store opens the connections. Invariants: at most CONNECTIONS
ranges of a store are in transit, each with one buffer in memory, however many files move; bytes are
summed once, while they arrive; the first failure stops the rest. A range that ends early or drips
is asked for again from where it stopped, on another connection.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from trainrun.checkpoint.stores.parts import Part, Stream, combine, cut, in_order
from trainrun.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from trainrun.checkpoint.stores.store import Range

CONNECTIONS = 16
"""Ranges in transit at once: a typical object store gives 60 MB/s per connection."""

LEAST, MOST = 4 << 20, 16 << 20
"""Bytes of a range: large enough that a request costs little, and small enough that a slow
connection holds up little."""

BUFFER = 1 << 18
"""Bytes read at a time: they are summed and written while a core still has them in its cache."""

TRIES = 3
"""Tries in a row that bring less than ENOUGH bytes."""
ENOUGH = 1 << 16

SLOWEST = 1 << 14
"""Bytes per second of a connection that drips, before it is known what others bring."""
SHARE = 0.1
"""A connection drips if it brings less than this part of what the others bring."""


class DripDetector:
    """What one connection of a store brings; finds those that drip. Thread-safe."""

    def __init__(self, *, patience: float = 5.0) -> None:
        """`patience`: seconds for which a connection may drip."""
        self.patience = patience
        self._lock = threading.Lock()
        self._usual = 0.0
        """Bytes per second; 0: not known."""

    def drips(self, count: int, seconds: float) -> bool:
        """Whether a connection that brought `count` bytes in this time is much slower than
        others."""
        speed = count / max(seconds, 1e-6)
        with self._lock:
            usual = self._usual
            # It follows slowly: one connection that drips says little, a network that became slow
            # says the same on all.
            self._usual += (speed - usual) / 8 if usual else speed
        return speed < max(SLOWEST, SHARE * usual)


OpenRange: TypeAlias = "Callable[[int, int], AbstractContextManager[Stream]]"
"""Requests a range, from this offset and of so many bytes, on any free connection."""


def fetch_file(
    path: Path,
    size: int,
    open_range: OpenRange,
    ranges: Sequence[Range] = (),
    *,
    name: str,
    limit: threading.Semaphore,
    pace: DripDetector,
) -> int:
    """Fill a new file with the `size` bytes of an object called `name`; return its CRC32.

    `ranges`: with these alone, and theirs.
    Raises what `open_range` raises (StoreUnavailable only after TRIES tries in a row that brought
    next to nothing), and OSError for errors of the file.
    """
    with path.open("wb", buffering=0) as target:
        # Without its blocks: they show how much has arrived (`FilesOnNode.received`).
        target.truncate(size)

        def fetch(part: Part) -> int:
            with limit:
                return _fetch(part, target.fileno(), open_range, name=name, pace=pace)

        parts = [
            replace(part, start=start + part.start)
            for start, count in ranges or [(0, size)]
            for part in ranges_of(count)
        ]
        if len(parts) == 1:
            return fetch(parts[0])
        crc32 = 0
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            futures = [pool.submit(fetch, part) for part in parts]
            for part, found in zip(parts, in_order(pool, futures), strict=True):
                crc32 = combine(crc32, found, part.size)
    return crc32


def ranges_of(size: int) -> list[Part]:
    """Split `size` bytes into ranges."""
    return cut(size, min(max(-(-size // CONNECTIONS), LEAST), MOST))


def _fetch(
    part: Part,
    target: int,
    open_range: OpenRange,
    *,
    name: str,
    pace: DripDetector,
) -> int:
    """Write a range to its offset in the file `target`; return its CRC32."""
    position, end, crc32, failures = part.start, part.start + part.size, 0, 0
    buffer = _buffer()
    while position < end:
        begin = position
        try:
            with open_range(position, end - position) as stream:
                since, mark = time.monotonic(), position
                while position < end:
                    count = stream.read_into(buffer[: end - position])
                    if not count:
                        raise StoreUnavailable(f"cannot read {name}: the response ended too early")
                    _write(target, buffer[:count], position)
                    crc32 = zlib.crc32(buffer[:count], crc32)
                    position += count
                    took = time.monotonic() - since
                    if took < pace.patience and position < end:
                        continue
                    if pace.drips(position - mark, took) and position < end:
                        raise StoreUnavailable(
                            f"cannot read {name}: a connection brought only "
                            f"{(position - mark) / 1e3:.0f} KB in {took:.0f} s"
                        )
                    since, mark = since + took, position
        except StoreUnavailable:
            failures = failures + 1 if position - begin < ENOUGH else 0
            if failures == TRIES:
                raise
    return crc32


def _write(target: int, data: memoryview, position: int) -> None:
    count = os.pwrite(target, data, position)
    while count < len(data):
        count += os.pwrite(target, data[count:], position + count)


_buffers = threading.local()


def _buffer() -> memoryview:
    """This thread's memory for what arrives: fresh memory costs as much as copying into it."""
    if not hasattr(_buffers, "own"):
        _buffers.own = memoryview(bytearray(BUFFER))
    own: memoryview = _buffers.own
    return own
