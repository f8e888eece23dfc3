"""Handing out the resume point: a good checkpoint is not given up for one bad reading of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent.on_disk import a_config
from trainrun.agent.checkpoints.downloads import HeldCheckpoint
from trainrun.agent.checkpoints.fetching import Fetching
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.description import describe_part, merge_descriptions
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.file import FileStore
from trainrun.checkpoint.writer import LocalFile, Upload, set_aside, write_part
from trainrun.contract import layout
from trainrun.contract.agent_state import Suspect
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.contract.questions import Failed, Fetched
from trainrun.errors import (
    CheckpointDamaged,
    NotUploadedYet,
    StoreDenied,
    StoreError,
)

STEP_5 = CheckpointId(attempt=1, step=5)


def saved(tmp_path: Path) -> tuple[RunStore, list[LocalFile]]:
    """An empty run, and the file that its only rank has saved at step 5."""
    (tmp_path / "storage").mkdir()
    model = tmp_path / "model.pt"
    model.write_bytes(b"abc")
    run = RunStore(open_store(f"file://{tmp_path}/storage"), "run")
    return run, [LocalFile(name="model.pt", path=model, rank=0)]


def stored(tmp_path: Path) -> RunStore:
    """A run that has stored step 5."""
    run, files = saved(tmp_path)
    write_part(run, attempt=1, step=5, worker=0, workers=1, files=files, metrics={}, whole=True)
    return run


async def test_damage_that_a_second_reading_does_not_find_sets_nothing_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored(tmp_path)
    read, readings = FileStore.get_file, []

    def get_file(store: FileStore, key: str, path: Path, **expected: int) -> None:
        readings.append(key)
        if len(readings) == 1:
            raise CheckpointDamaged(f"{key}: its content changed")  # on its way to this node
        read(store, key, path, **expected)  # type: ignore[arg-type]

    monkeypatch.setattr(FileStore, "get_file", get_file)
    config = a_config(tmp_path)
    resume = CheckpointId(attempt=1, step=5)
    storage = AsyncRunStore(config)
    fetching = Fetching(storage=storage, resume=resume, initial=None, news=lambda: None)
    reply = await fetching.checkpoint(None)
    storage.close()
    assert isinstance(reply, Fetched)
    assert (Path(reply.path) / "model.pt").read_bytes() == b"abc"
    assert fetching.damaged is None
    assert run.bad() == set()


async def test_ranges_of_a_file_are_a_file_of_the_process_alone(tmp_path: Path) -> None:
    stored(tmp_path)
    storage = AsyncRunStore(a_config(tmp_path))
    fetching = Fetching(storage=storage, resume=STEP_5, initial=None, news=lambda: None)
    first = await fetching.ranges("model.pt", [(1, 1)])
    other = await fetching.ranges("model.pt", [(0, 2)])
    missing = await fetching.ranges("optimizer.pt", [(0, 2)])
    storage.close()
    assert isinstance(first, Fetched)
    assert isinstance(other, Fetched)
    assert Path(first.path).read_bytes() == b"\0b\0"
    assert Path(other.path).read_bytes() == b"ab\0"
    assert isinstance(missing, Failed)
    assert missing.error.endswith("step-000000005-attempt-1 has no file optimizer.pt")


async def test_ranges_of_a_staged_file_wait_until_its_content_was_compared(tmp_path: Path) -> None:
    run, files = saved(tmp_path)
    describe_part(
        run,
        STEP_5,
        worker=0,
        workers=1,
        files=files,
        metrics={},
        metadata={},
        unchanged=lambda: None,
        upload=Upload(),
    )
    merge_descriptions(run, STEP_5, workers=1)
    storage = AsyncRunStore(a_config(tmp_path))
    storage.downloads.held = HeldCheckpoint(
        checkpoint=STEP_5, link=lambda _file, _path: False, others={}
    )
    run.store.put(run.key(layout.folder(STEP_5) + layout.file_name(0, "model.pt")), b"xyz")
    with pytest.raises(NotUploadedYet, match=r"model\.pt of .* is on a worker's disk"):
        await storage.downloads.piece(STEP_5, "model.pt", [(0, 1)])
    write_part(run, attempt=1, step=5, worker=0, workers=1, files=files, metrics={})
    path = await storage.downloads.piece(STEP_5, "model.pt", [(0, 1)])
    storage.close()
    assert path.read_bytes() == b"a\0\0"


@dataclass
class Reader:
    """An agent's way to a checkpoint of step 5, which reads wrongly while `wrong`."""

    run: RunStore
    fetching: Fetching
    told: asyncio.Event
    wrong: bool = True
    refusal: StoreError | None = None


@pytest.fixture
async def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reader]:
    run = stored(tmp_path)
    storage = AsyncRunStore(a_config(tmp_path))
    told = asyncio.Event()
    fetching = Fetching(storage=storage, resume=STEP_5, initial=None, news=told.set, again=0.05)
    made = Reader(run, fetching, told)
    read = FileStore.get_file

    def get_file(store: FileStore, key: str, path: Path, **expected: int) -> None:
        if made.refusal is not None:
            raise made.refusal
        if made.wrong:
            raise CheckpointDamaged(f"{key}: its content changed")  # on its way to this node
        read(store, key, path, **expected)  # type: ignore[arg-type]

    monkeypatch.setattr(FileStore, "get_file", get_file)
    yield made
    storage.close()


@pytest.mark.case(
    "storage", "One node reads a checkpoint wrongly", counted="maxFailures after three in a row"
)
async def test_a_node_that_reads_wrongly_sets_nothing_aside_and_hands_nothing_out(
    reader: Reader,
) -> None:
    asked = asyncio.create_task(reader.fetching.checkpoint(None))
    await reader.told.wait()
    assert reader.fetching.suspect == Suspect(
        id=STEP_5,
        files=("worker-00000/model.pt",),
        message="run/checkpoints/step-000000005-attempt-1/worker-00000/model.pt: "
        "its content changed",
    )
    assert not asked.done()
    assert reader.run.bad() == set()
    reader.wrong = False  # it was the network, and that has been mended
    reply = await asked
    assert isinstance(reply, Fetched)
    assert reader.fetching.suspect is None
    assert reader.run.bad() == set()


async def test_what_is_set_aside_by_hand_ends_the_wait(reader: Reader) -> None:
    asked = asyncio.create_task(reader.fetching.checkpoint(None))
    await reader.told.wait()
    set_aside(reader.run, STEP_5, "by hand")
    reply = await asked
    assert isinstance(reply, Failed)
    assert reply.error.startswith("checkpoint step-000000005-attempt-1 is damaged: ")
    assert reader.fetching.damaged is not None
    assert reader.fetching.suspect is None


async def test_the_suspicion_is_still_told_when_the_attempt_was_ended(reader: Reader) -> None:
    asked = asyncio.create_task(reader.fetching.checkpoint(None))
    await reader.told.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert reader.fetching.suspect is not None


async def test_keys_that_are_refused_for_a_moment_do_not_end_the_process_that_loads(
    reader: Reader,
) -> None:
    reader.refusal = StoreDenied("cannot read model.pt: ExpiredToken")
    asked = asyncio.create_task(reader.fetching.checkpoint(None))
    await reader.told.wait()
    problem = reader.fetching.problem
    assert problem is not None
    assert (problem.type, problem.reason, problem.message) == (
        "StorageUnavailable",
        "Refused",
        "processes wait for a checkpoint: cannot read model.pt: ExpiredToken",
    )
    reader.wrong, reader.refusal = False, None
    assert isinstance(await asked, Fetched)
    assert reader.fetching.problem is None


@pytest.mark.case(
    "storage",
    "The store refuses while processes load their checkpoint",
    counted="maxFailures after three in a row",
)
async def test_a_process_that_the_store_refuses_for_long_is_told_why_it_ends(
    reader: Reader,
) -> None:
    reader.fetching.refusals = 0.1
    reader.refusal = StoreDenied("cannot read model.pt: ExpiredToken")
    reply = await reader.fetching.checkpoint(None)
    assert isinstance(reply, Failed)
    assert reply.error == (
        "checkpoint step-000000005-attempt-1 cannot be read: cannot read model.pt: ExpiredToken"
    )
    problem = reader.fetching.problem
    assert problem is not None
    assert problem.reason == "Refused"
