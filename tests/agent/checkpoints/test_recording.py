"""The agent stores what it is told of the run's story: once, and in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from trainrun.agent.checkpoints.run_artifacts import Recording
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.contract.answer import StoryEntry
from trainrun.contract.wire import LARGEST_STORY_ENTRY
from trainrun.errors import StoreUnavailable


class Store:
    """Keeps what is written, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.written: list[tuple[int, Mapping[str, Any]]] = []
        self.failures = failures

    async def write_story(self, number: int, chapter: Mapping[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        self.written.append((number, chapter))


def a_recording(store: Store) -> tuple[Recording, list[str]]:
    told: list[str] = []
    recording = Recording(storage=cast("AsyncRunStore", store), news=lambda: told.append("news"))
    return recording, told


def entries(*numbers: int) -> tuple[StoryEntry, ...]:
    return tuple(StoryEntry(number=n, text=f'{{"attempt":{n}}}') for n in numbers)


@pytest.mark.case(
    "operator", "The operator or an agent dies before a chapter of the story is stored"
)
async def test_each_chapter_is_stored_once_and_told() -> None:
    store = Store()
    recording, told = a_recording(store)
    recording.want(entries(1, 2))
    await recording.finished()
    recording.want(entries(1, 2))
    await recording.finished()
    assert store.written == [(1, {"attempt": 1}), (2, {"attempt": 2})]
    assert recording.done == (1, 2)
    assert len(told) == 2
    recording.want(entries(2, 3))
    await recording.finished()
    assert recording.done == (2, 3), "only of what is asked for now"


async def test_a_store_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainrun._common.backoff.Backoff.next", lambda _self: 0.0)
    store = Store(failures=3)
    recording, _ = a_recording(store)
    recording.want(entries(5))
    await asyncio.wait_for(recording.finished(), 10)
    assert recording.done == (5,)


@pytest.mark.parametrize("text", ["{", "[]", f'"{"x" * LARGEST_STORY_ENTRY}"'])
async def test_what_is_no_chapter_is_left_out_and_not_asked_for_again(text: str) -> None:
    store = Store()
    recording, _ = a_recording(store)
    recording.want((StoryEntry(number=1, text=text), *entries(2)))
    await recording.finished()
    assert [number for number, _ in store.written] == [2]
    assert recording.done == (1, 2)


async def test_nothing_to_store_takes_no_time() -> None:
    recording, _ = a_recording(Store())
    recording.want(())
    await recording.finished()
    assert recording.done == ()


async def test_no_secret_is_stored() -> None:
    store = Store()
    recording, _ = a_recording(store)
    text = '{"incident":{"lastLines":["login with password=hunter2 now"]}}'
    recording.want((StoryEntry(number=1, text=text),))
    await recording.finished()
    told = {"incident": {"lastLines": ["login with password=*** now"]}}
    assert store.written == [(1, told)]
