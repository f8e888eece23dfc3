"""The driver alone, with a store that a test plays."""

from __future__ import annotations

import asyncio
import time

from tests.support.task_workers import MemoryTaskStorage
from trainrun.tasks.calls import ProgramOptions
from trainrun.tasks.driver import Driver
from trainrun.tasks.hub import Hub
from trainrun.tasks.records import Output
from trainrun.tasks.task_storage import RetryingTaskStorage, TaskLog


class EmptyKeep(MemoryTaskStorage):
    """It has a log, and no object."""

    def sizes(self, names: list[str]) -> list[int | None]:
        return [None for _ in names]


async def test_a_reader_that_gives_up_leaves_the_search_to_those_that_wait_on() -> None:
    """`get(..., timeout=)` while a worker misses the same result."""
    patient = RetryingTaskStorage(EmptyKeep())  # type: ignore[arg-type]
    driver = Driver(
        storage=patient,
        log=TaskLog(patient, "session", time.time),
        digest_in_store=lambda _: "",
        patience=0.1,
    )
    driver.workers = Hub(driver.receive, driver.away)
    await driver.open(ProgramOptions())
    turning = asyncio.create_task(driver.run())
    driver.given("k", Output(digest="d", size=70_000))
    await driver.wait(["k"], 1)

    impatient, other = (
        asyncio.create_task(driver.missing("k", 0, damaged=False)) for _ in range(2)
    )
    await asyncio.sleep(0.01)
    impatient.cancel()
    await other

    assert driver.engine.outcome("k") is None, "it was found to be lost"
    await driver.end(returned=True)
    await turning
