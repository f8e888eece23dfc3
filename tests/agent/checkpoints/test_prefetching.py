"""Reading ahead what an attempt will most likely resume from: it is there when processes ask."""

from __future__ import annotations

import asyncio
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agent.on_disk import a_config
from tests.agent.workers import start
from trainrun.agent.checkpoints.fetching import Prefetching
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.file import FileStore
from trainrun.checkpoint.writer import LocalFile, commit_if_complete, write_part
from trainrun.contract.answer import Hold
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import StoreUnavailable

if TYPE_CHECKING:
    from tests.agent.workers import Workers
    from tests.support.operator_stand_in import OperatorStandIn

STEP_5, STEP_7 = CheckpointId(attempt=1, step=5), CheckpointId(attempt=1, step=7)


def stored(folder: Path, step: int = 5, *, ranks: tuple[int, ...] = (0,)) -> RunStore:
    """A checkpoint of attempt 1 with a file of each of these ranks, one to a worker."""
    (folder / "storage").mkdir(exist_ok=True)
    run = RunStore(open_store(f"file://{folder}/storage"), "run")
    for rank in ranks:
        path = folder / f"model-{rank}.pt"
        path.write_bytes(b"abc" * (rank + 1))
        write_part(
            run,
            attempt=1,
            step=step,
            worker=rank,
            workers=len(ranks),
            files=[LocalFile(name=path.name, path=path, rank=rank)],
            metrics={},
        )
    commit_if_complete(run, attempt=1, step=step)
    return run


def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files that are read from the store."""
    read, found = FileStore.get_file, list[str]()

    def get_file(store: FileStore, key: str, path: Path, **expected: int) -> None:
        found.append(key.rpartition("/")[2])
        read(store, key, path, **expected)  # type: ignore[arg-type]

    monkeypatch.setattr(FileStore, "get_file", get_file)
    return found


def always() -> bool:
    return True


@pytest.mark.parametrize(
    ("brought", "ours", "ahead"),
    [
        ((0,), (2, 3), (0,)),  # one rank's files are everybody's
        ((0, 1, 2), (1, 2), (1, 2)),
        ((0, 1), (2,), ()),
    ],
)
async def test_what_ranks_read_in_any_case_is_read_ahead_and_nothing_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    brought: tuple[int, ...],
    ours: tuple[int, ...],
    ahead: tuple[int, ...],
) -> None:
    stored(tmp_path, ranks=brought)
    read = readings(monkeypatch)
    storage = AsyncRunStore(a_config(tmp_path))
    size = await storage.downloads.prefetch(STEP_5, ours, always)
    names = [f"model-{rank}.pt" for rank in brought]
    assert sorted(read) == [names[rank] for rank in ahead]
    assert size == sum(3 * (rank + 1) for rank in ahead)
    read.clear()
    folder = await storage.downloads.materialize(STEP_5, None)
    storage.close()
    assert sorted(read) == [names[rank] for rank in brought if rank not in ahead]
    assert sorted(path.name for path in folder.iterdir()) == names


async def test_one_that_is_not_wanted_any_more_is_left_between_two_files(tmp_path: Path) -> None:
    stored(tmp_path)
    storage = AsyncRunStore(a_config(tmp_path))
    with pytest.raises(StoreUnavailable, match="another checkpoint was chosen"):
        await storage.downloads.prefetch(STEP_5, (0,), lambda: False)
    storage.close()


async def test_nobody_waits_for_a_checkpoint_that_was_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path)
    stored(tmp_path, 7)
    read, begun, go = FileStore.get_file, threading.Event(), threading.Event()

    def get_file(store: FileStore, key: str, path: Path, **expected: int) -> None:
        if f"{STEP_7.name}/" in key:
            begun.set()
            go.wait(20)
        read(store, key, path, **expected)  # type: ignore[arg-type]

    monkeypatch.setattr(FileStore, "get_file", get_file)
    storage = AsyncRunStore(a_config(tmp_path))
    ahead = Prefetching(storage=storage, ranks=(0,))
    ahead.want(STEP_7)
    assert await asyncio.to_thread(begun.wait, 20)
    assert await storage.downloads.materialize(STEP_5, None)
    ahead.only(STEP_5)
    go.set()
    storage.close()


def test_processes_get_what_was_read_ahead_though_the_store_has_lost_it_since(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    """Their agent reads the manifest alone."""
    run = stored(tmp_path)
    (tmp_path / "train.py").write_text(
        "import os, trainrun\n"
        "with trainrun.get_checkpoint().as_directory() as folder:\n"
        "    print('got', open(os.path.join(folder, 'model-0.pt')).read(), flush=True)\n"
    )
    worker = workers.start("", command=(sys.executable, str(tmp_path / "train.py")), created_for=2)
    operator.order(Hold(attempt=2, prefetch=STEP_5), generation=1)
    worker.shows(f"checkpoint {STEP_5.name}: prefetched")
    [file] = Path(run.store.uri.removeprefix("file://")).rglob("model-0.pt")
    file.unlink()
    operator.order(start(2, resume=STEP_5), generation=1)
    worker.shows("[rank 0] got abc")


def test_what_cannot_be_read_ahead_is_told_when_a_process_asks_and_not_before(
    operator: OperatorStandIn, workers: Workers, tmp_path: Path
) -> None:
    run = stored(tmp_path)
    shutil.rmtree(next(Path(run.store.uri.removeprefix("file://")).rglob(STEP_5.name)))
    worker = workers.start("import trainrun\ntrainrun.get_checkpoint().step", created_for=2)
    operator.order(Hold(attempt=2, prefetch=STEP_5), generation=1)
    worker.shows(f"checkpoint {STEP_5.name} is not prefetched")
    told = operator.until(lambda s: s.held and s.held.attempt == 2)
    assert (told.damaged, told.suspect, told.problems) == (None, None, ())
