"""Connections between driver and workers that are lost, while nobody dies: it costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.task_workers import KEY, MessagesToDriver, make_worker, start, until
from trainrun.tasks import worker as worker_module
from trainrun.tasks.calls import Call, ProgramOptions
from trainrun.tasks.driver import Driver
from trainrun.tasks.hub import Hub
from trainrun.tasks.messages import Joined
from trainrun.tasks.task_storage import RetryingTaskStorage, TaskLog, from_bytes
from trainrun.tasks.wire import Link, dial


class EnoughError(Exception):
    """Ends a worker that would try for ever."""


class Proxy:
    """Between workers and the driver; cuts when it is told to."""

    def __init__(self, port: int) -> None:
        self.behind = port
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        self._server.close()
        self.cut()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self.behind)
            self._writers |= {writer, back}
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(4096):
                writer.write(piece)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "CONNECT_AGAIN", (0.001, 0.01))


@pytest.mark.case("tasks", "The connection between two ranks with tasks is lost")
@pytest.mark.slow
async def test_cuts_at_any_moment_run_nothing_twice_and_lose_no_result(tmp_path: Path) -> None:
    luck = random.Random(5)
    worker, storage, runner = make_worker(tmp_path)
    patient = RetryingTaskStorage(storage)  # type: ignore[arg-type]
    driver = Driver(
        storage=patient,
        log=TaskLog(patient, "session", time.time),
        digest_in_store=lambda _: "",
        patience=1.0,
    )
    hub = driver.workers = Hub(driver.receive, driver.away)
    await driver.open(ProgramOptions())
    proxy = Proxy(await hub.listen("127.0.0.1", 0, KEY))
    await proxy.start()
    turning = asyncio.create_task(driver.run())
    staying = asyncio.create_task(worker.stay(lambda: dial("127.0.0.1", proxy.port, KEY)))

    keys = [f"{number:064x}" for number in range(200)]
    for key in keys:
        driver.call(Call(key=key, function="m:double", arguments=b"hello"))
    waiting = asyncio.create_task(driver.wait(keys, len(keys)))
    cuts = 0
    while not waiting.done():
        await asyncio.sleep(luck.random() * 0.04)
        proxy.cut()
        cuts += 1

    assert cuts > 5
    assert sorted(it.key for it in runner.begun) == keys
    records = [record for data in storage.batches for record in from_bytes(data).records]
    assert Counter(it.kind for it in records) == {"Began": 1, "Dispatched": 200, "Done": 200}
    await driver.end(returned=True)
    await turning
    await hub.close(1)
    await asyncio.wait_for(staying, 30)
    await worker.close()
    await proxy.close()


async def test_a_worker_with_another_key_says_that_it_cannot_reach_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "QUIET", 0.0)
    hub = Hub(lambda *_: None, lambda _: None)
    port = await hub.listen("127.0.0.1", 0, KEY)
    worker, _, _ = make_worker(tmp_path)

    async def connect() -> Link:
        if caplog.text:
            raise EnoughError
        return await dial("127.0.0.1", port, bytes(32))

    with pytest.raises(EnoughError):
        await worker.stay(connect)
    assert "worker 1 cannot reach the driver; retrying: " in caplog.text
    await hub.close(0)


@pytest.mark.case("tasks", "The program ends while a worker is away")
async def test_leave_is_said_until_the_worker_has_it(tmp_path: Path) -> None:
    """A worker that was away when the program ended, and one that is late, would stay for ever."""
    heard = MessagesToDriver()
    hub = Hub(heard.message, heard.away.append)
    proxy = Proxy(await hub.listen("127.0.0.1", 0, KEY))
    await proxy.start()
    worker, _, _ = make_worker(tmp_path / "1")
    staying = asyncio.create_task(worker.stay(lambda: dial("127.0.0.1", proxy.port, KEY)))
    await until(lambda: heard.joined)
    closing = asyncio.create_task(hub.close(2))
    proxy.cut()
    await asyncio.wait_for(staying, 30)
    assert not closing.done()

    late, _, _ = make_worker(tmp_path / "2", number=2)
    await late.stay(lambda: dial("127.0.0.1", proxy.port, KEY))
    await asyncio.wait_for(closing, 30)
    await proxy.close()


async def test_a_driver_that_starts_again_finds_its_workers_with_what_they_do(
    tmp_path: Path,
) -> None:
    first = MessagesToDriver()
    hub = Hub(first.message, first.away.append)
    port = await hub.listen("127.0.0.1", 0, KEY)
    worker, _, runner = make_worker(tmp_path)
    staying = asyncio.create_task(worker.stay(lambda: dial("127.0.0.1", port, KEY)))
    await until(lambda: first.joined)
    order = start(function="m:wait")
    hub.send(1, order)
    await until(lambda: runner.begun)
    hub._leaving = True  # it dies: nobody says Leave
    for task in hub._tasks:
        task.cancel()
    assert hub._listener
    hub._listener.close()

    second = MessagesToDriver()
    again = Hub(second.message, second.away.append)
    await again.listen("127.0.0.1", port, KEY)
    await until(lambda: second.joined)
    runner.go.set()
    await until(lambda: second.ended)

    assert second.joined[0].running == (order.run,)
    assert runner.begun == [order.run]
    await again.close(1)
    await asyncio.wait_for(staying, 30)


async def test_a_newer_connection_of_a_worker_replaces_the_older_one() -> None:
    heard = MessagesToDriver()
    hub = Hub(heard.message, heard.away.append)
    port = await hub.listen("127.0.0.1", 0, KEY)
    links = []
    for count in (1, 2):
        links.append(link := await dial("127.0.0.1", port, KEY))
        link.send(Joined(worker=1, cpus=1, gpus=0))
        await until(lambda expected=count: len(heard.joined) == expected)
    assert heard.away == [1]
    hub.send(1, start())
    assert await links[1].receive() == start()
    await hub.close(0)
    for link in links:
        link.close()
