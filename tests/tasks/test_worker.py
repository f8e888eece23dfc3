"""What a worker of tasks does with the driver's orders."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.task_workers import (
    MemoryTaskStorage,
    ScriptedRunner,
    input_of,
    make_worker,
    output_of,
    start,
    until,
)
from trainrun.tasks import worker as worker_module
from trainrun.tasks.messages import Acknowledged, Bring, Brought, Ended, Joined, Leave, StopTask
from trainrun.tasks.records import Crashed, Finished, InputMissing, Stopped
from trainrun.tasks.wire import Link, pair
from trainrun.tasks.worker import Worker

OPEN: list[Driver] = []


class Driver:
    """The driver's end of the link to one worker."""

    def __init__(
        self, folder: Path, storage: MemoryTaskStorage | None = None, number: int = 1
    ) -> None:
        self.worker: Worker
        self.storage: MemoryTaskStorage
        self.runner: ScriptedRunner
        self.worker, self.storage, self.runner = make_worker(folder, storage=storage, number=number)
        self.link: Link
        OPEN.append(self)
        self.serving: asyncio.Task[bool]

    async def join(self) -> Joined:
        self.link, theirs = await pair()
        self.serving = asyncio.create_task(self.worker.serve(theirs))
        joined = await self.link.receive()
        assert isinstance(joined, Joined)
        return joined

    async def end(self) -> Ended:
        ended = await self.link.receive()
        assert isinstance(ended, Ended)
        return ended

    async def run(self, order) -> Ended:  # type: ignore[no-untyped-def]
        self.link.send(order)
        return await self.end()


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    while OPEN:
        OPEN.pop().link.close()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "STORE_AGAIN", (0.01, 0.02))


async def test_a_task_gets_its_inputs_and_its_result_is_in_the_store(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    assert await driver.join() == Joined(worker=1, cpus=2.0, gpus=0)
    driver.storage.objects["a-1/0"] = b"value"

    ended = await driver.run(start(1, input_of(b"value")))

    assert ended == Ended(
        run=start().run, end=Finished(outputs=(output_of(b"valuevalue"),), seconds=0.1)
    )
    assert driver.storage.objects["k-1/0"] == b"valuevalue"
    driver.link.send(Leave())
    assert await driver.serving


async def test_an_end_is_repeated_until_it_is_heard(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    first = await driver.run(start())
    driver.link.close()
    assert not await driver.serving

    joined = await driver.join()
    assert joined.running == (first.run,)
    assert await driver.end() == first
    driver.link.send(Acknowledged(run=first.run))
    driver.link.close()
    await driver.serving

    assert (await driver.join()).running == ()
    assert driver.runner.begun == [first.run]


async def test_a_blip_stops_nothing_and_starts_nothing_again(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    order = start(function="m:wait")
    driver.link.send(order)
    await until(lambda: driver.runner.begun)
    driver.link.close()
    await driver.serving

    joined = await driver.join()
    driver.link.send(order)
    driver.runner.go.set()

    assert joined.running == (order.run,)
    assert isinstance((await driver.end()).end, Finished)
    assert driver.runner.begun == [order.run]


async def test_what_is_stopped_says_so_also_if_it_was_never_here(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    order = start(function="m:wait")
    driver.link.send(order)
    await until(lambda: driver.runner.begun)
    driver.link.send(StopTask(run=order.run))
    assert await driver.end() == Ended(run=order.run, end=Stopped())

    unknown = start(7).run
    driver.link.send(StopTask(run=unknown))
    assert await driver.end() == Ended(run=unknown, end=Stopped())


async def test_an_input_that_is_absent_or_damaged_is_named(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    ended = await driver.run(start(1, input_of(b"value")))
    assert ended.end == InputMissing(key="a", index=0, why="Absent")

    driver.storage.objects["a-1/0"] = b"other"
    ended = await driver.run(start(2, input_of(b"value")))
    assert ended.end == InputMissing(key="a", index=0, why="Damaged")
    assert driver.runner.begun == []


@pytest.mark.case("tasks", "The store is away when an input or a result is moved")
async def test_while_the_store_is_away_results_wait_and_nothing_runs_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    driver.storage.away = True
    driver.link.send(start())
    with caplog.at_level(logging.WARNING):
        await until(lambda: driver.storage.calls["upload"] >= 3)
    assert "worker 1 waits for the store: 503" in caplog.text

    driver.storage.away = False
    assert isinstance((await driver.end()).end, Finished)
    assert driver.runner.begun == [start().run]


async def test_a_result_that_waits_for_the_store_can_be_stopped(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    driver.storage.away = True
    driver.link.send(start())
    await until(lambda: driver.storage.calls["upload"])
    driver.link.send(StopTask(run=start().run))
    assert (await driver.end()).end == Stopped()


async def test_a_worker_that_cannot_run_a_task_ends_it_with_the_reason(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    ended = await driver.run(start(function="m:broken"))
    assert ended.end == Crashed(reason="Exited", message="worker 1: out of order")


@pytest.mark.case("tasks", "A worker's disk is full of results", counted="a retry of the task")
async def test_a_full_disk_is_emptied_of_what_is_not_used_then_it_ends_the_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    await driver.run(start())
    calls = []

    def full(name: str, path: Path) -> None:
        calls.append([*(tmp_path / "store").iterdir()])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(driver.storage, "download", full)
    ended = await driver.run(start(2, input_of(b"value")))
    assert [len(left) for left in calls] == [1, 0, 0, 0]
    assert isinstance(ended.end, Crashed)
    assert "No space left on device" in ended.end.message


async def test_an_input_is_downloaded_once_for_all_ranks_of_a_node(tmp_path: Path) -> None:
    storage = MemoryTaskStorage()
    storage.objects["a-1/0"] = b"value"
    drivers = [Driver(tmp_path, storage, number) for number in range(3)]
    for driver in drivers:
        await driver.join()
        for number in range(1, 5):
            driver.link.send(start(number, input_of(b"value")))
    for driver in drivers:
        for _ in range(4):
            assert isinstance((await driver.end()).end, Finished)
    assert storage.calls["download"] == 1


async def test_a_result_for_the_node_alone_is_used_there_and_brought_when_asked(
    tmp_path: Path,
) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    ended = await driver.run(start(keep="node"))
    assert isinstance(ended.end, Finished)
    kept = replace(output_of(b"hello"), kept="Node")
    assert ended.end.outputs == (kept,)
    assert driver.storage.objects == {}

    ended = await driver.run(start(2, replace(input_of(b"hello"), output=kept)))
    assert isinstance(ended.end, Finished)
    assert driver.storage.calls["download"] == 0

    driver.link.send(Bring(object="k-1/0", digest=kept.digest))
    assert await driver.link.receive() == Brought(object="k-1/0", there=True)
    assert driver.storage.objects["k-1/0"] == b"hello"


async def test_a_copy_that_nobody_has_or_that_is_damaged_is_not_brought(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    await driver.join()
    digest = output_of(b"hello").digest
    driver.link.send(Bring(object="k-1/0", digest=digest))
    assert await driver.link.receive() == Brought(object="k-1/0", there=False)

    await driver.run(start())
    copy = tmp_path / "store" / digest
    copy.chmod(0o600)
    copy.write_bytes(b"hellO")
    driver.storage.objects.clear()
    driver.link.send(Bring(object="k-1/0", digest=digest))
    assert await driver.link.receive() == Brought(object="k-1/0", there=False)
    assert driver.storage.objects == {}
