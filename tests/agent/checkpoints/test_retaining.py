"""When slot 0's agent deletes old checkpoints and leftovers, and what it tells; on a real store."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.agent.checkpoints.test_uploads import Bench, until
from tests.support.mounts import mounted
from trainrun.agent.checkpoints import lanes, retaining
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.ownership import BeatWatch
from trainrun.checkpoint.resolution import resolve
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.contract.answer import ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Retention:
    """That of the agent, which fails while it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = False
        self.done = self.refused = 0
        real = AsyncRunStore.retain

        async def retain(storage: AsyncRunStore, attempt: int) -> None:
            if self.fails:
                self.refused += 1
                raise StoreUnavailable("cannot delete from s3://bucket/runs: 503: SlowDown")
            await real(storage, attempt)
            self.done += 1

        monkeypatch.setattr(AsyncRunStore, "retain", retain)


@pytest.fixture
def retention(monkeypatch: pytest.MonkeyPatch) -> Retention:
    monkeypatch.setattr(lanes, "FIRST_PAUSE", 0.02)
    monkeypatch.setattr(lanes, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(retaining, "PATIENCE", 0.1)
    return Retention(monkeypatch)


@contextmanager
def an_attempt(folder: Path, number: int) -> Iterator[Bench]:
    """Slot 0 of an attempt that is the newest one; two checkpoints are kept."""
    (folder / "storage").mkdir(exist_ok=True)
    run = RunStore(open_store(f"file://{folder}/storage"), "run")
    for attempt in range(1, number + 1):
        resolve(run, ResolveRequest(attempt=attempt), uid="uid-1", watch=BeatWatch())
    bench = Bench(folder)
    bench.uploads.attempt = bench.uploads.retaining.attempt = number
    bench.storage.settings = replace(bench.storage.settings, keep=2)
    try:
        yield bench
    finally:
        bench.uploads.close()
        bench.storage.close()


def left_by_a_killed_agent(bench: Bench, attempt: int = 1, size: int = 3) -> Path:
    """One of its files is stored, another was under way."""
    checkpoint = bench.checkpoints / CheckpointId(attempt=attempt, step=90).name
    (checkpoint / "worker-00000").mkdir(parents=True)
    for name in ("rank0.pt", ".trainrun-tmp-dead"):
        (checkpoint / "worker-00000" / name).write_bytes(os.urandom(size))
    return checkpoint


async def test_what_killed_agents_have_left_goes_although_no_attempt_gets_as_far_as_a_commit(
    tmp_path: Path,
) -> None:
    """Each attempt added its own, until the store was full."""
    with an_attempt(tmp_path, 2) as bench:
        left, own = left_by_a_killed_agent(bench), left_by_a_killed_agent(bench, attempt=2)
        bench.uploads.start()
        await until(lambda: not left.exists())
        assert own.exists()


@pytest.mark.case("storage", "The storage is full")
async def test_a_store_that_is_full_of_leftovers_has_room_for_the_next_checkpoint(
    tmp_path: Path, retention: Retention
) -> None:
    """Deleting them waited for a commit, and the commit for the room."""
    with mounted(tmp_path / "storage", "size=1m"), an_attempt(tmp_path, 2) as bench:
        bench.uploads.start()
        await until(lambda: retention.done == 1)
        left = left_by_a_killed_agent(bench, size=400_000)  # by one that was cut off until now
        bench.save(10, whole=True, content=os.urandom(400_000))
        await until(lambda: bench.committed == 10)
        assert not left.exists()
        assert bench.uploads.problem is None


async def test_old_checkpoints_go_where_another_worker_commits_the_whole_ones(
    tmp_path: Path, retention: Retention
) -> None:
    """`checkpoint.keep` had no effect where the rank that reported them was not on worker 0."""
    with an_attempt(tmp_path, 1) as bench:
        bench.uploads.start()
        await until(lambda: retention.done == 1)
        for step in (10, 20, 30):
            bench.part_of_slot_1(step, whole=True)
        bench.uploads.saw_commit(CheckpointId(attempt=1, step=30))
        bench.uploads.wake()
        await until(lambda: retention.done == 2)
        assert len(list(bench.checkpoints.iterdir())) == 2
        bench.uploads.saw_commit(CheckpointId(attempt=1, step=30))  # each answer says so
        assert not bench.uploads.retaining.due


async def test_old_checkpoints_go_as_soon_as_the_store_deletes_again(
    tmp_path: Path, retention: Retention
) -> None:
    """One 503 left them there until the next commit."""
    with an_attempt(tmp_path, 1) as bench:
        bench.uploads.start()
        await until(lambda: retention.done == 1)
        retention.fails = True
        for step in (10, 20, 30):
            bench.save(step, whole=True)
            await until(lambda step=step: bench.committed == step)
        await until(lambda: bench.uploads.retaining.problem)
        assert len(list(bench.checkpoints.iterdir())) == 3
        retention.fails = False
        await until(lambda: bench.uploads.retaining.problem is None)
        assert sorted(path.name[:14] for path in bench.checkpoints.iterdir()) == [
            "step-000000020",
            "step-000000030",
        ]


@pytest.mark.case("storage", "Old checkpoints cannot be deleted")
async def test_that_old_checkpoints_stay_is_not_told_as_if_new_ones_were_not_stored(
    tmp_path: Path, retention: Retention
) -> None:
    """`StorageReady` was False, "checkpoints wait to be stored", and all of them were stored."""
    with an_attempt(tmp_path, 1) as bench:
        retention.fails = True
        bench.uploads.start()
        bench.save(10, whole=True)
        await until(lambda: bench.committed == 10)
        await until(lambda: bench.uploads.retaining.problem)
        assert bench.uploads.problem is None
        found = bench.uploads.retaining.problem
        assert found is not None
        assert (found.type, found.reason, found.message) == (
            "OldCheckpointsKept",
            "StoreUnavailable",
            "old checkpoints cannot be deleted now: "
            "cannot delete from s3://bucket/runs: 503: SlowDown",
        )


async def test_a_store_that_does_not_delete_for_a_moment_is_not_told(
    tmp_path: Path, retention: Retention, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retaining, "PATIENCE", 60.0)
    told: list[None] = []
    with an_attempt(tmp_path, 1) as bench:
        bench.uploads.news = lambda: told.append(None)
        retention.fails = True
        bench.uploads.start()
        await until(lambda: retention.refused >= 3)
        retention.fails = False
        await until(lambda: retention.done == 1)
        assert told == []


async def test_a_commit_while_old_checkpoints_are_being_deleted_is_followed_by_another_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int | None] = []
    with an_attempt(tmp_path, 1) as bench:

        async def retain(_: AsyncRunStore, attempt: int) -> None:
            looks.append(bench.committed)
            if len(looks) == 1:
                bench.save(10, whole=True)
                await until(lambda: bench.committed == 10)

        monkeypatch.setattr(AsyncRunStore, "retain", retain)
        bench.uploads.start()
        await until(lambda: len(looks) == 2)
        assert looks == [None, 10]
