"""Reading in ranges: one file with one checksum, whatever a connection does."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
import zlib
from typing import TYPE_CHECKING

import pytest

from trainrun.checkpoint.stores import ranges
from trainrun.checkpoint.stores.parts import ReadStream, Stream
from trainrun.checkpoint.stores.ranges import LEAST, DripDetector, fetch_file, ranges_of
from trainrun.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONTENT = os.urandom(2 * LEAST + 12_345)
"""Three ranges."""


class Source:
    """Serves CONTENT; `connect` decides what becomes of a connection, by its number."""

    def __init__(self, connect: Callable[[int, io.BytesIO], Stream | io.BytesIO]) -> None:
        self.connect = connect
        self.requests: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def open_range(self, start: int, count: int) -> Iterator[Stream]:
        with self._lock:
            number = len(self.requests)
            self.requests.append((start, count))
        stream = self.connect(number, io.BytesIO(CONTENT[start : start + count]))
        yield ReadStream(stream.read1) if isinstance(stream, io.BytesIO) else stream

    def fetch(self, path: Path, *, patience: float = 5.0) -> int:
        return fetch_file(
            path,
            len(CONTENT),
            self.open_range,
            name="s3://bucket/model.pt",
            limit=threading.BoundedSemaphore(ranges.CONNECTIONS),
            pace=DripDetector(patience=patience),
        )


class Drip:
    """A connection that brings a byte now and then."""

    def __init__(self, inner: io.BytesIO) -> None:
        self.inner = inner

    def read_into(self, buffer: memoryview, /) -> int:
        time.sleep(0.02)
        return self.inner.readinto(buffer[:1])


def test_the_ranges_make_one_file_with_one_checksum(tmp_path: Path) -> None:
    source = Source(lambda _, stream: stream)
    assert source.fetch(tmp_path / "file") == zlib.crc32(CONTENT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert sorted(source.requests) == [(0, LEAST), (LEAST, LEAST), (2 * LEAST, 12_345)]


def test_a_range_that_ends_early_goes_on_where_it_stopped(tmp_path: Path) -> None:
    def connect(number: int, stream: io.BytesIO) -> io.BytesIO:
        return io.BytesIO(stream.read(100_000)) if number == 0 else stream

    source = Source(connect)
    assert source.fetch(tmp_path / "file") == zlib.crc32(CONTENT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    start, count = source.requests[0]
    assert (start + 100_000, count - 100_000) in source.requests


def test_a_connection_that_drips_is_given_up_for_another(tmp_path: Path) -> None:
    source = Source(lambda number, stream: Drip(stream) if number == 0 else stream)
    assert source.fetch(tmp_path / "file", patience=0.1) == zlib.crc32(CONTENT)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(source.requests) == 4


def test_a_store_that_only_drips_is_told_after_three_connections(tmp_path: Path) -> None:
    source = Source(lambda _, stream: Drip(stream))
    message = r"cannot read s3://bucket/model.pt: a connection brought only 0 KB in \d+ s"
    with pytest.raises(StoreUnavailable, match=message):
        source.fetch(tmp_path / "file", patience=0.1)


def test_a_store_that_breaks_off_at_once_is_told(tmp_path: Path) -> None:
    source = Source(lambda _, stream: io.BytesIO(stream.read(10)))
    with pytest.raises(StoreUnavailable, match=r"model\.pt: the response ended too early"):
        source.fetch(tmp_path / "file")


def test_a_network_that_became_slow_for_all_is_not_given_up() -> None:
    pace = DripDetector()
    assert not pace.drips(60_000_000, 1.0)
    assert pace.drips(1_000_000, 1.0)
    assert not all(pace.drips(1_000_000, 1.0) for _ in range(20))


@pytest.mark.parametrize("size", [1, LEAST, LEAST + 1, 1 << 30])
def test_ranges_cover_a_file_once(size: int) -> None:
    parts = ranges_of(size)
    assert [part.start for part in parts] == [
        sum(p.size for p in parts[:n]) for n in range(len(parts))
    ]
    assert sum(part.size for part in parts) == size
