"""The last lines of an attempt are stored in the background, once, and before the agent leaves."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from trainrun.agent.checkpoints.run_artifacts import MOST_LOGS, LogKeeping
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.logs import WorkerLog
from trainrun.errors import StoreUnavailable


class Store:
    """Keeps what is written, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.written: list[int] = []
        self.failures = failures

    async def write_log(self, log: WorkerLog) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        self.written.append(log.attempt)


def keeping(store: Store) -> LogKeeping:
    return LogKeeping(storage=cast("AsyncRunStore", store))


def lines(attempt: int) -> WorkerLog:
    return WorkerLog(attempt=attempt, slot=0)


async def test_nothing_is_stored_while_the_next_attempt_starts_and_all_at_the_end() -> None:
    store = Store()
    logs = keeping(store)
    logs.keep(1, lambda: lines(1))
    logs.keep(1, lambda: pytest.fail("asked for twice"))
    await asyncio.sleep(0)
    assert store.written == []
    logs.keep(2, lambda: lines(2))
    await logs.finished()
    assert store.written == [1, 2]


@pytest.mark.case("operator", "A node dies before the last lines of its processes are stored")
async def test_after_a_pause_they_are_stored_without_anybody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainrun.agent.checkpoints.run_artifacts.LOG_PAUSE", (0.0, 0.0))
    store = Store()
    logs = keeping(store)
    logs.keep(3, lambda: lines(3))
    task = logs._task
    assert task is not None
    await task
    assert store.written == [3]


async def test_a_store_that_is_away_is_asked_again_and_what_waits_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainrun._common.backoff.Backoff.next", lambda _self: 0.0)
    store = Store(failures=3)
    logs = keeping(store)
    for attempt in range(1, MOST_LOGS + 3):
        logs.keep(attempt, lambda attempt=attempt: lines(attempt))  # type: ignore[misc]
    await logs.finished()
    assert store.written == [3, 4, 5]


async def test_an_agent_that_ran_nothing_has_nothing_to_store() -> None:
    store = Store()
    await keeping(store).finished()
    assert store.written == []
