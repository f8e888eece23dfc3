"""How a file goes up: read once, in memory that is used again, whole or not at all."""

from __future__ import annotations

import os
import random
import re
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench
from tests.support.foreign_answers import Exchange, ForeignAnswers, foreign_answers
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.stores.parts import PART, Part
from trainrun.checkpoint.stores.sending import BLOCK, Blocks, PartBuffers
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.checkpoint.writer import Upload
from trainrun.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.s3_server import S3Server


@pytest.fixture
def proxy(s3_server: S3Server, s3_uri: str) -> Iterator[ForeignAnswers]:
    with foreign_answers(s3_server.port) as proxy:
        yield proxy


def test_no_more_memory_is_used_than_for_the_parts_in_transit(tmp_path: Path) -> None:
    path, whole = tmp_path / "file", Part(number=1, start=0, size=PART)
    content = random.Random(0).randbytes(PART)
    path.write_bytes(content)
    buffers = PartBuffers(threading.BoundedSemaphore(2))
    before = memory_used()
    with path.open("rb") as source, buffers.kept():
        for _ in range(3):
            with buffers.filled(source.fileno(), whole, path) as one:
                with buffers.filled(source.fileno(), whole, path) as other:
                    assert one == other == content
        del one, other
        assert PART < memory_used() - before < 3 * PART
    assert memory_used() - before < PART


def memory_used() -> int:
    """Bytes that only this process holds."""
    status = Path("/proc/self/status").read_text()
    return 1024 * sum(map(int, re.findall(r"RssAnon:\s+(\d+) kB", status)))


def test_a_body_is_sent_in_blocks_and_again_from_its_start() -> None:
    """A whole part in one call would have to go within the time to connect."""
    data = random.Random(0).randbytes(2 * BLOCK + 1)
    body = Blocks(memoryview(data))
    assert [bytes(body.read(16_384)) for _ in range(4)] == [
        data[:BLOCK],
        data[BLOCK : 2 * BLOCK],
        data[2 * BLOCK :],
        b"",
    ]
    assert (len(body), body.tell()) == (len(data), len(data))
    body.seek(0)
    assert bytes(body.read()) == data


def test_a_file_that_has_become_shorter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"short")
    with path.open("rb") as source, pytest.raises(StoreError, match=f"{path} changed while it was"):
        with PartBuffers(threading.BoundedSemaphore(1)).filled(
            source.fileno(), Part(number=1, start=0, size=6), path
        ):
            pass


@dataclass
class Rewriting(Upload):
    """Changes a byte of a file, and not its size, once a piece of it has moved."""

    path: Path | None = None

    def advance(self, count: int) -> None:
        super().advance(count)
        if count and self.path is not None:
            with self.path.open("r+b") as file:
                file.write(b"!")
            self.path = None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bench", pytest.param("s3_bench", marks=pytest.mark.servers)])
@pytest.mark.parametrize("size", [10, 3 * PART])
def test_a_file_that_changes_while_it_is_sent_is_not_committed(
    request: pytest.FixtureRequest, kind: str, size: int
) -> None:
    bench: Bench = request.getfixturevalue(kind)
    files = bench.save(0, {"model.pt": bytes(size)})
    upload = Rewriting(path=files[0].path)
    message = "model.pt changed while it was being uploaded; write new files for each checkpoint"
    with pytest.raises(StoreError, match=message):
        bench.store(files, step=1, upload=upload)
    assert not [item.key for item in bench.run.objects("") if item.key.endswith(".json")]
    manifest = bench.store(files, step=1, upload=upload)
    assert manifest is not None
    assert [item.crc32 for item in manifest.files] == [zlib.crc32(b"!" + bytes(size - 1))]


def test_a_repeated_upload_sends_only_what_is_not_there_and_what_has_changed(
    proxied: ObjectStore, proxy: ForeignAnswers, tmp_path: Path
) -> None:
    bench = Bench(run=RunStore(proxied, "digits"), scratch=tmp_path / "scratch")
    files = bench.save(0, {name: name.encode() for name in ("a", "b", "c")})

    def refuse(exchange: Exchange) -> None:
        if exchange.path.endswith("/c"):
            exchange.status = 503

    upload, proxy.before = Upload(), refuse
    with pytest.raises(StoreUnavailable):
        bench.store(files, step=1, upload=upload)
    proxy.before = lambda _: None
    proxy.seen.clear()
    files[0].path.write_bytes(b"A")
    os.utime(files[0].path, ns=(0, 0))
    manifest = bench.store(files, step=1, upload=upload)
    assert manifest is not None
    contents = {"a": b"A", "b": b"b", "c": b"c"}
    assert {item.name: item.crc32 for item in manifest.files} == {
        name: zlib.crc32(content) for name, content in contents.items()
    }
    sent = [path.rpartition("/")[2] for method, path in proxy.seen if method == "PUT"]
    assert sorted(sent) == ["a", "c", "manifest.json"]
