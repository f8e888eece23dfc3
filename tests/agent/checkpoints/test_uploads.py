"""The lanes that upload and commit, beside a real store: nothing holds up what comes after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from tests.agent.on_disk import a_config
from tests.agent.workers import start
from trainrun.agent.checkpoints import lanes
from trainrun.agent.checkpoints.carried import carried_part
from trainrun.agent.checkpoints.run_artifacts import MetricsQueue
from trainrun.agent.checkpoints.staged import StagedSteps
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.agent.checkpoints.uploads import Uploads
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.writer import LocalFile, Upload, write_part
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.messages import Report
from trainrun.errors import TransferCancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


@dataclass
class Bench:
    """Slot 0 of an attempt with two workers; the test itself is slot 1."""

    folder: Path
    storage: AsyncRunStore = field(init=False)
    staged: StagedSteps = field(init=False)
    uploads: Uploads = field(init=False)

    def __post_init__(self) -> None:
        config = a_config(self.folder)
        self.storage, self.staged = AsyncRunStore(config), StagedSteps((0,))
        self.uploads = Uploads(
            attempt=1,
            slot=0,
            workers=2,
            staged=self.staged,
            storage=self.storage,
            news=lambda: None,
        )

    @property
    def checkpoints(self) -> Path:
        return self.folder / "storage/run/checkpoints"

    @property
    def pieces(self) -> list[Path]:
        """Of the metrics."""
        return list((self.folder / "storage/run/metrics").glob("*"))

    @property
    def committed(self) -> int | None:
        known = self.uploads.committed
        return known.id.step if known is not None else None

    def save(self, step: int, *, whole: bool = False, content: bytes = b"abc") -> None:
        """Rank 0 reports a checkpoint."""
        directory = self.folder / f"staged-{step}"
        directory.mkdir()
        (directory / "rank0.pt").write_bytes(content)
        report = Report(step=step, left="new", whole=whole)
        self.staged.bring(0, report, directory, after_save=False, now=float(step))
        self.staged.reports(0, step)
        self.uploads.wake()

    def part_of_slot_1(self, step: int, *, whole: bool = False) -> None:
        """What the other worker's agent does."""
        path = self.folder / f"rank1-{step}.pt"
        path.write_bytes(b"def")
        write_part(
            RunStore(open_store(f"file://{self.folder}/storage"), "run"),
            attempt=1,
            step=step,
            worker=1,
            workers=2,
            files=[LocalFile(name="rank1.pt", path=path, rank=1)],
            metrics={},
            whole=whole,
        )

    def hear_of(self, *steps: int) -> None:
        """The operator says that both parts of these steps are in the store."""
        for step in steps:
            self.uploads.stored(step, (0, 1))
        self.uploads.wake()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    (tmp_path / "storage").mkdir()
    made = Bench(tmp_path)
    made.uploads.start()
    yield made
    made.uploads.close()
    made.storage.close()


async def until(condition: Callable[[], object]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"not within 10 s: {condition}")


async def test_a_part_that_is_lost_in_the_store_does_not_keep_later_checkpoints_from_their_commit(
    bench: Bench,
) -> None:
    for step in (1, 2):
        bench.save(step)
        bench.part_of_slot_1(step)
    await until(lambda: not bench.staged.pending())
    (bench.checkpoints / CheckpointId(attempt=1, step=1).name / "worker-00001/rank1.pt").unlink()
    bench.hear_of(1, 2)
    await until(lambda: bench.committed == 2)


async def test_staged_files_that_cannot_be_read_do_not_hold_up_later_checkpoints(
    bench: Bench,
) -> None:
    bench.save(1)
    shutil.rmtree(bench.folder / "staged-1")
    bench.save(2)
    bench.part_of_slot_1(2)
    bench.hear_of(2)
    await until(lambda: bench.committed == 2)
    assert not bench.staged.pending()


async def test_staged_files_that_cannot_be_read_are_told(bench: Bench) -> None:
    bench.save(1)
    shutil.rmtree(bench.folder / "staged-1")
    await until(lambda: bench.uploads.problem)
    assert bench.uploads.problem is not None
    assert bench.uploads.problem.type == "StagingUnreadable"
    assert "staged-1" in bench.uploads.problem.message


async def test_a_lost_part_is_told_while_no_later_checkpoint_is_complete(bench: Bench) -> None:
    bench.save(1)
    bench.part_of_slot_1(1)
    await until(lambda: not bench.staged.pending())
    (bench.checkpoints / CheckpointId(attempt=1, step=1).name / "worker-00001/rank1.pt").unlink()
    bench.hear_of(1)
    await until(lambda: bench.uploads.problem)
    assert bench.uploads.problem is not None
    assert bench.uploads.problem.type == "CheckpointDamaged"
    assert "worker-00001/rank1.pt: missing" in bench.uploads.problem.message


async def test_a_part_that_the_listing_shows_late_is_committed_without_further_news(
    bench: Bench,
) -> None:
    bench.save(1)
    await until(lambda: not bench.staged.pending())
    bench.hear_of(1)
    await until(lambda: bench.uploads.problem)
    assert bench.uploads.problem is not None
    assert "step-000000001-attempt-1" in bench.uploads.problem.message
    assert "does not show" in bench.uploads.problem.message
    bench.part_of_slot_1(1)
    await until(lambda: bench.committed == 1)
    assert bench.uploads.problem is None


async def test_when_time_is_short_the_store_is_tried_again_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "FIRST_PAUSE", 600.0)
    monkeypatch.setattr(lanes, "LONGEST_PAUSE", 600.0)
    away = bench.folder / "away"
    (bench.folder / "storage").rename(away)
    bench.uploads.close()
    bench.uploads.start()
    bench.save(1)
    await until(lambda: bench.uploads.problem)
    away.rename(bench.folder / "storage")
    bench.uploads.hurry()
    await until(lambda: not bench.staged.pending())


@pytest.mark.parametrize(("hurried", "first"), [(False, 1), (True, 2)])
async def test_when_time_is_short_the_newest_checkpoint_is_stored_first(
    bench: Bench, hurried: bool, first: int
) -> None:
    stored: list[set[int]] = []

    async def look_before_an_upload() -> None:
        stored.append({s.step for s in bench.staged.describe(0.0) if s.uploaded})

    bench.uploads.before_commit = look_before_an_upload
    bench.save(1)
    bench.save(2)
    if hurried:
        bench.uploads.hurry()
    await until(lambda: not bench.staged.pending())
    assert stored == [set(), {first}]


async def test_an_upload_of_something_older_than_a_commit_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[Upload] = []

    async def write_part(*_: object, upload: Upload, **__: object) -> None:
        under_way.append(upload)
        await asyncio.Event().wait()

    monkeypatch.setattr(AsyncRunStore, "write_part", write_part)
    bench.save(1)
    await until(lambda: under_way)
    with contextlib.suppress(TransferCancelled):
        under_way[0].advance(0)
    bench.uploads.saw_commit(CheckpointId(attempt=1, step=2))
    with pytest.raises(TransferCancelled):
        under_way[0].advance(0)


async def test_a_whole_checkpoint_after_an_empty_part_of_its_step_is_committed(
    bench: Bench,
) -> None:
    bench.staged.reports(0, 5, nothing=True)
    bench.staged.open([5], 0.0)
    bench.uploads.wake()
    await until(lambda: [(s.step, s.uploaded) for s in bench.staged.describe(0.0)] == [(5, True)])
    bench.save(5, whole=True)
    await until(lambda: bench.committed == 5)
    assert (bench.checkpoints / "step-000000005-attempt-1/worker-00000/rank0.pt").exists()


async def test_what_was_reported_with_a_step_is_stored_before_the_step_is_committed(
    bench: Bench,
) -> None:
    """Whoever goes on from the commit does not report it again: a sweep would miss its value."""
    queue = MetricsQueue(attempt=1, storage=bench.storage, interval=3600)
    stored_first: list[bool] = []

    async def before_commit() -> None:
        await queue.write()
        manifest = bench.checkpoints / "step-000000001-attempt-1/manifest.json"
        stored_first.append(bool(bench.pieces) and not manifest.exists())

    bench.uploads.before_commit = before_commit
    queue.add(0, 1, {"loss": 0.5})
    bench.save(1)
    bench.part_of_slot_1(1)
    await until(lambda: bool(stored_first))
    bench.hear_of(1)
    await until(lambda: bench.committed == 1)

    assert stored_first
    assert all(stored_first)


async def test_two_writers_of_metrics_wait_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    storage = AsyncRunStore(a_config(tmp_path))
    queue = MetricsQueue(attempt=1, storage=storage, interval=3600)
    queue.add(0, 1, {"loss": 0.5})

    async def second() -> bool:
        await queue.write()
        return bool(list((tmp_path / "storage/run/metrics").glob("*")))

    _, found = await asyncio.gather(queue.write(), second())
    storage.close()
    assert found


def change_in_silence(path: Path, content: bytes) -> None:
    """As a disk may: with the same size and time."""
    facts = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


async def test_the_newest_step_on_the_disk_is_summed_before_anything_crashes(bench: Bench) -> None:
    bench.uploads.keep = 4
    bench.save(1)
    bench.save(2)
    await until(lambda: 2 in bench.uploads._handles and bench.uploads._handles[2].summed)
    change_in_silence(bench.folder / "staged-2/rank0.pt", b"xyz")
    bench.uploads.order(frozenset({2}), in_place=True)
    bench.uploads.wake()
    await until(lambda: bench.uploads.holds)
    _, described = bench.uploads.take(2) or (None, None)
    assert described is not None
    assert described.files[0].crc32 == zlib.crc32(b"abc"), "its file was not read again"
    assert not bench.uploads.problem


async def test_files_that_cannot_be_summed_ahead_are_told_when_they_are_needed(
    bench: Bench,
) -> None:
    bench.uploads.keep = 4
    bench.save(1)
    shutil.rmtree(bench.folder / "staged-1")
    await until(lambda: bench.uploads._summed == 1)
    assert not bench.uploads.problem
    bench.uploads.order(frozenset({1}), in_place=True)
    bench.uploads.wake()
    await until(lambda: bench.uploads.problem)
    assert bench.uploads.problem is not None
    assert bench.uploads.problem.type == "StagingUnreadable"


async def test_a_worker_that_leaves_uploads_what_it_began_with_at_once(bench: Bench) -> None:
    bench.save(2)
    bench.uploads.order(frozenset({2}), in_place=True)
    await until(lambda: bench.uploads.holds)
    point = CheckpointId(attempt=1, step=2)
    begin = replace(start(2, workers=2, resume=point), staged=True)
    carried = carried_part(begin, None, bench.uploads, news=lambda: None)
    assert carried is not None
    carried.start(after=3600.0)
    await asyncio.sleep(0)
    carried.start()
    await until((bench.checkpoints / point.name / "worker-00000.done.json").exists)
