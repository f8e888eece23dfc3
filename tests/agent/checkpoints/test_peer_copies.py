"""Workers of one node read a checkpoint from the store once: one downloads, the others copy."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.tcp_proxy import tcp_proxy
from tests.agent.on_disk import a_config
from tests.agent.workers import Worker, Workers, start
from tests.support.eventually import eventually
from tests.support.s3_server import S3Server
from trainrun.agent.checkpoints import downloads, sharing
from trainrun.agent.checkpoints.downloads import Copying, Downloads
from trainrun.agent.checkpoints.sharing import Sharing
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.cache import CachedFile
from trainrun.checkpoint.reader import initial_on_node
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.file import FileStore
from trainrun.checkpoint.stores.ranges import ranges_of
from trainrun.checkpoint.writer import LocalFile, write_part
from trainrun.contract.agent_config import StorageConfig
from trainrun.contract.answer import PeerSource
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.operator_stand_in import OperatorStandIn

RESUME = CheckpointId(attempt=1, step=5)
NAMES = ("optimizer.bin", "model with a space.bin", "sub/rank-0.bin")
SIZE = 20 << 20

LOAD = """
import hashlib, pathlib, trainrun
with trainrun.get_checkpoint().as_directory() as folder:
    for path in sorted(p for p in pathlib.Path(folder).rglob("*") if p.is_file()):
        print("read", path.relative_to(folder), hashlib.md5(path.read_bytes()).hexdigest())
print("all read", flush=True)
"""


@pytest.fixture
def s3(own_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    return own_s3


def at(s3: S3Server, endpoint: str | None = None) -> StorageConfig:
    return StorageConfig(
        uri="s3://bucket/runs",
        run_name="run",
        endpoint_url=endpoint or s3.endpoint,
        region="us-east-1",
    )


def commit(storage: StorageConfig, folder: Path) -> None:
    files = []
    for number, name in enumerate(NAMES):
        path = folder / f"file-{number}"
        path.write_bytes(bytes([number]) * (SIZE if number == 0 else 1000))
        files.append(LocalFile(name=name, path=path, rank=0))
    store = open_store(storage.uri, endpoint_url=storage.endpoint_url, region=storage.region)
    write_part(
        RunStore(store, "run"),
        attempt=1, step=5, worker=0, workers=1, files=files, metrics={}, whole=True,
    )  # fmt: skip
    store.close()


def two(
    workers: Workers,
    storage: StorageConfig,
    source: StorageConfig | None = None,
    *,
    script: str = LOAD,
    **more: object,
) -> list[Worker]:
    """Agents with a cache each, as in two pods of one node."""
    return [
        workers.start(
            script,
            **more,
            slot=slot,
            storage=source if slot == 0 and source is not None else storage,
            cache=str(workers.folder / f"cache-{slot}"),
        )
        for slot in (0, 1)
    ]


def order_both(
    operator: OperatorStandIn, *, first: int = 0, resume: CheckpointId | None = RESUME
) -> None:
    """Start attempt 2 on both; slot 1 copies from slot 0. `first` hears of it first."""
    state = operator.until(lambda s: s.serves, worker="run-0-1")
    order = start(2, workers=2, resume=resume)
    copies = replace(order, source=PeerSource(address=state.serves, secret=state.agent))
    operator.until(lambda s: True, worker="run-1-1")
    orders = [("run-0-1", order), ("run-1-1", copies)]
    for worker, each in orders if first == 0 else reversed(orders):
        operator.order(each, worker=worker)
        operator.until(lambda s: s.attempt == 2, worker=worker)


def reads(s3: S3Server) -> Counter[str]:
    """How often the bytes of each file were asked for; large ones are read in parts."""
    return Counter(
        path.partition("/worker-00000/")[2]
        for kind, path in s3.requests()
        if kind == "GetObject" and "/worker-00000/" in path
    )


@pytest.mark.parametrize("first", [0, 1])
def test_a_checkpoint_is_read_from_the_store_once_by_two_workers_of_a_node(
    s3: S3Server, operator: OperatorStandIn, workers: Workers, first: int
) -> None:
    commit(at(s3), workers.folder)
    started = two(workers, at(s3))
    order_both(operator, first=first)
    shown = []
    for worker in started:
        worker.shows("all read")
        lines = [line[9:] for line in worker.output.splitlines()]
        shown.append({line for line in lines if line.startswith(("read ", "all read"))})
        assert len(shown[-1]) == 4
    assert shown[0] == shown[1]
    parts = len(ranges_of(SIZE))
    assert reads(s3) == {NAMES[0]: parts, NAMES[1]: 1, NAMES[2]: 1}


def test_initial_weights_are_read_from_the_store_once_by_two_workers_of_a_node(
    s3: S3Server, operator: OperatorStandIn, workers: Workers
) -> None:
    """Any folder, not a checkpoint of ours: nothing but its listing says what is in it."""
    store = open_store("s3://bucket/models/base", endpoint_url=s3.endpoint, region="us-east-1")
    contents = {"config.json": b"{}", "shards/weights 1.bin": bytes(1000), "empty": b""}
    for name, content in contents.items():
        store.put(name, content)
    store.close()
    started = two(
        workers,
        at(s3),
        script=LOAD.replace("get_checkpoint", "get_initial_checkpoint"),
        initial_from="s3://bucket/models/base",
    )
    order_both(operator, resume=None)
    for worker in started:
        worker.shows("all read")
        for name, content in contents.items():
            assert f"read {name} {hashlib.md5(content).hexdigest()}" in worker.output
    gets = Counter(
        path.partition("/base/")[2]
        for kind, path in s3.requests()
        if kind == "GetObject" and "/base/" in path
    )
    assert {name: gets[name] for name in contents if contents[name]} == {
        "config.json": 1,
        "shards/weights 1.bin": 1,
    }


def test_initial_weights_that_the_other_sees_differently_are_read_from_the_store(
    s3: S3Server, operator: OperatorStandIn, workers: Workers
) -> None:
    store = open_store("s3://bucket/models", endpoint_url=s3.endpoint, region="us-east-1")
    store.put("then/weights.bin", b"old")
    store.put("now/weights.bin", b"new and longer")
    store.close()
    started = [
        workers.start(
            LOAD.replace("get_checkpoint", "get_initial_checkpoint"),
            slot=slot,
            storage=at(s3),
            cache=str(workers.folder / f"cache-{slot}"),
            initial_from=f"s3://bucket/models/{state}",
        )
        for slot, state in enumerate(["then", "now"])
    ]
    order_both(operator, resume=None)
    started[0].shows(f"read weights.bin {hashlib.md5(b'old').hexdigest()}")
    started[1].shows("this worker does not have initial-")
    started[1].shows("), so the store is read instead")
    started[1].shows(f"read weights.bin {hashlib.md5(b'new and longer').hexdigest()}")


def test_a_slow_download_of_the_other_is_waited_for(
    s3: S3Server, operator: OperatorStandIn, workers: Workers
) -> None:
    commit(at(s3), workers.folder)
    with tcp_proxy(s3.port) as slow:
        slow.delay = 0.05
        started = two(workers, at(s3), source=at(s3, slow.endpoint))
        order_both(operator)
        for worker in started:
            worker.shows("all read", timeout=60)
    assert "the store is read instead" not in started[1].output
    assert sum(reads(s3).values()) == len(ranges_of(SIZE)) + 2


def test_the_store_is_read_when_the_other_agent_has_gone(
    s3: S3Server, operator: OperatorStandIn, workers: Workers
) -> None:
    commit(at(s3), workers.folder)
    with tcp_proxy(s3.port) as slow:
        slow.delay = 1.0
        slow.chunk = 1 << 14
        started = two(workers, at(s3), source=at(s3, slow.endpoint))
        order_both(operator)
        eventually(lambda: list((workers.folder / "cache-0").rglob("partial")))
        started[0].kill()
        started[1].shows("the store is read instead")
        started[1].shows("all read")


def test_an_agent_that_does_not_know_the_secret_gets_nothing(
    s3: S3Server, operator: OperatorStandIn, workers: Workers
) -> None:
    commit(at(s3), workers.folder)
    started = two(workers, at(s3))
    state = operator.until(lambda s: s.serves, worker="run-0-1")
    source = PeerSource(address=state.serves, secret="guessed")
    operator.order(replace(start(2, workers=2, resume=RESUME), source=source), worker="run-1-1")
    started[1].shows("401: the token is not that of this agent), so the store is read instead")
    started[1].shows("all read")


# ------------------------------------------------------------------------- one side alone


class Side:
    """A server over a storage on this disk, and a client of it."""

    def __init__(self, folder: Path, *, initial: bool = False) -> None:
        (folder / "storage").mkdir()
        storage = StorageConfig(uri=f"file://{folder}/storage", run_name="run")
        commit(storage, folder)
        self.initial = f"{storage.uri}/run/checkpoints/{RESUME.name}"
        self.storage = AsyncRunStore(
            a_config(folder, initial_from=self.initial if initial else None)
        )
        self.sharing = Sharing(self.storage.downloads, "Secret")
        self.target = folder / "copied"

    async def copy(self, source: str, *, size: int = 1000, crc32: int = 0) -> bool:
        copies = Copying(PeerSource(address=self.sharing.address, secret="Secret"), RESUME.name)
        file = CachedFile(name=source, source=source, size=size, crc32=crc32)
        with contextlib.closing(copies):
            return await asyncio.to_thread(copies.copy, file, self.target)


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    made = Side(tmp_path)
    made.sharing.open("127.0.0.1")
    yield made
    made.sharing.close()
    made.storage.close()


@pytest.mark.slow
async def test_what_is_not_as_the_manifest_says_is_not_taken(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    name = "worker-00000/sub/rank-0.bin"
    assert not await side.copy(name, crc32=7)
    assert "arrived with 1000 bytes and CRC32" in caplog.text
    assert not await side.copy(name, size=999)
    assert "has 1000 bytes there, should be 999" in caplog.text


@pytest.mark.slow
async def test_a_file_that_is_not_in_the_checkpoint_is_not_served(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("manifest.json", "../../run.json", "worker-00000/../../run.json"):
        assert not await side.copy(name)
    assert caplog.text.count("404: step-000000005-attempt-1 has no file") == 3


@pytest.mark.slow
async def test_a_download_of_the_other_that_stands_still_is_given_up(
    side: Side, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(*_: object) -> Path:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Downloads, "obtain", never)
    monkeypatch.setattr(sharing, "HOLD", 0.05)
    monkeypatch.setattr(downloads, "COPY_PATIENCE", 0.5)
    assert not await side.copy("worker-00000/sub/rank-0.bin")
    assert "its own download has stalled at 0 bytes" in caplog.text


@pytest.mark.slow
async def test_a_download_of_the_other_that_makes_progress_is_waited_for_beyond_patience(
    side: Side, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def get_file(store: FileStore, key: str, path: Path, **_: int) -> None:
        with path.open("wb", buffering=0) as target:
            target.truncate(1000)  # as parallel ranges do, it has its whole length from the start
            for position in range(0, 120 << 10, 4 << 10):
                target.seek(position)
                target.write(bytes(4 << 10))
                time.sleep(0.1)
            target.truncate(1000)
            target.seek(0)
            target.write(bytes([2]) * 1000)

    monkeypatch.setattr(FileStore, "get_file", get_file)
    monkeypatch.setattr(sharing, "HOLD", 0.05)
    monkeypatch.setattr(downloads, "COPY_PATIENCE", 1.5)
    crc32 = zlib.crc32(bytes([2]) * 1000)
    assert await side.copy("worker-00000/sub/rank-0.bin", crc32=crc32), caplog.text
    assert side.target.read_bytes() == bytes([2]) * 1000


@pytest.mark.slow
async def test_what_has_arrived_of_a_checkpoint_counts_while_initial_weights_are_asked_for(
    tmp_path: Path,
) -> None:
    """A slow download was given up as standing still, since another worker asked for the other."""
    side = Side(tmp_path, initial=True)
    store, name = open_store(side.initial), "worker-00000/sub/rank-0.bin"
    found = initial_on_node(store, cache_dir=tmp_path / "cache")
    assert not isinstance(found, Path)
    for asked in (RESUME.name, found.name):
        await side.storage.downloads.obtain(asked, name)
    assert side.storage.downloads.received(RESUME.name) > 0
    assert side.storage.downloads.received(found.name) > 0
    assert side.storage.downloads.received("step-000000009-attempt-1") == 0
    store.close()
    side.storage.close()


async def test_initial_weights_of_a_run_that_has_none_are_not_served(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    copies = Copying(PeerSource(address=side.sharing.address, secret="Secret"), "initial-00000000")
    file = CachedFile(name="a", source="a", size=1, crc32=0)
    with contextlib.closing(copies):
        assert not await asyncio.to_thread(copies.copy, file, side.target)
    assert "404: the run has no checkpoint.initialFrom" in caplog.text


async def test_what_is_no_request_of_ours_is_refused(side: Side) -> None:
    host, port = side.sharing.address.split(":")
    secret = "authorization: Bearer Secret"
    for request, status in [
        (f"POST /v1/checkpoints/{RESUME.name}/x HTTP/1.1\r\n{secret}", b"400"),
        (f"GET /v1/checkpoints/elsewhere HTTP/1.1\r\n{secret}", b"400"),
        (f"GET /v1/checkpoints/elsewhere/x HTTP/1.1\r\n{secret}", b"404"),
        (f"GET /v1/checkpoints/{RESUME.name}/x HTTP/1.1", b"401"),
        ("nonsense", b"401"),
    ]:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"{request}\r\n\r\n".encode())
        assert (await reader.readline()).split()[1] == status
        writer.close()


def test_a_worker_without_an_address_of_its_own_serves_nothing(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start("pass", address="192.0.2.1")
    worker.shows("cannot serve checkpoints to other workers at 192.0.2.1")
    assert operator.until(lambda s: True).serves == ""
