"""Calls of the store beside each other: none keeps another from its thread."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.agent.on_disk import a_config
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint import ownership, resolution
from trainrun.checkpoint.cache import run_folder
from trainrun.checkpoint.cache_folders import locked
from trainrun.checkpoint.ownership import BeatWatch
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.writer import LocalFile, write_part
from trainrun.contract.answer import ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType


RANKS = 8


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[AsyncRunStore]:
    config = a_config(tmp_path, processes_per_worker=RANKS)
    made = AsyncRunStore(config)
    yield made
    made.close()


def run_of(tmp_path: Path) -> RunStore:
    return RunStore(open_store(f"file://{tmp_path}/storage"), "run")


async def test_the_owner_shows_life_while_many_ranks_wait_for_a_long_download(
    storage: AsyncRunStore, tmp_path: Path
) -> None:
    assert (await storage.resolve(ResolveRequest(attempt=1))).outcome == "Resolved"
    model = tmp_path / "model.pt"
    model.write_bytes(b"abc")
    write_part(
        run_of(tmp_path),
        attempt=1,
        step=5,
        worker=0,
        workers=1,
        files=[LocalFile(name="model.pt", path=model, rank=0)],
        metrics={},
        whole=True,
    )
    name = CheckpointId(attempt=1, step=5)
    folder = run_folder(tmp_path / "cache", uri=f"file://{tmp_path}/storage/run", name="run")
    with locked(folder / name.name):  # another worker of this node downloads it just now
        for _attempt in range(3):  # those that wait in vain die, and the next ones wait
            waiting = [
                asyncio.create_task(storage.downloads.materialize(name, None)) for _ in range(RANKS)
            ]
            assert await asyncio.wait_for(storage.beat(1, None), 10)
            for task in waiting:
                task.cancel()
        waiting = [
            asyncio.create_task(storage.downloads.materialize(name, None)) for _ in range(RANKS)
        ]
    paths = await asyncio.wait_for(asyncio.gather(*waiting), 20)
    assert {(path / "model.pt").read_bytes() for path in paths} == {b"abc"}


@pytest.mark.parametrize(("module", "call"), [(ownership, "beat"), (resolution, "resolve")])
async def test_a_release_waits_for_what_would_take_it_back(
    storage: AsyncRunStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    call: str,
) -> None:
    assert (await storage.resolve(ResolveRequest(attempt=1))).outcome == "Resolved"
    begun, go_on = threading.Event(), threading.Event()
    real = getattr(module, call)

    def slow(*arguments: object, **more: object) -> object:
        begun.set()
        assert go_on.wait(20)
        return real(*arguments, **more)

    monkeypatch.setattr(module, call, slow)
    under_way = asyncio.create_task(
        storage.beat(1, None) if call == "beat" else storage.resolve(ResolveRequest(attempt=2))
    )
    await asyncio.to_thread(begun.wait)
    under_way.cancel()  # as whoever leaves does
    releasing = asyncio.create_task(storage.release())
    await asyncio.wait([releasing], timeout=0.1)
    go_on.set()
    await releasing
    monkeypatch.undo()
    found = resolution.resolve(
        run_of(tmp_path), ResolveRequest(attempt=3), uid="uid-2", watch=BeatWatch()
    )
    assert found.outcome == "Resolved"


async def test_whoever_is_told_of_no_generation_finds_it_and_stays_there(
    storage: AsyncRunStore, tmp_path: Path
) -> None:
    run = run_of(tmp_path)
    resolution.resolve(run, ResolveRequest(attempt=1), uid="another", watch=BeatWatch())
    found = await storage.resolve(ResolveRequest(attempt=1, on_existing="StartFresh"))
    assert (found.outcome, found.generation) == ("Resolved", 2)
    storage.enter(0)  # the operator has not written it down yet
    assert await storage.beat(1, None)
    second = replace(run, generation=2)
    assert {item.key for item in second.objects("owners/")} == {
        "owners/000001.json",
        "owners/000001.beat",
    }
    assert await storage.newest_attempt() == 1


async def test_whoever_is_told_of_a_generation_asks_no_further(
    storage: AsyncRunStore, tmp_path: Path
) -> None:
    storage.enter(3)
    found = await storage.resolve(ResolveRequest(attempt=1, on_existing="StartFresh"))
    assert (found.outcome, found.generation) == ("Resolved", 3)
    assert run_of(tmp_path).objects("generations/") == []
