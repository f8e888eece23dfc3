"""A node's disk that is full: who may take room from whom."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import zlib
from typing import TYPE_CHECKING

import pytest

from tests.agent.on_disk import a_config
from trainrun.agent.checkpoints import downloads
from trainrun.agent.checkpoints.downloads import Copying, Downloads
from trainrun.agent.checkpoints.sharing import Sharing
from trainrun.agent.checkpoints.storage import AsyncRunStore
from trainrun.checkpoint.cache import CachedFile
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.file import FileStore
from trainrun.checkpoint.writer import LocalFile, commit_if_complete, write_part
from trainrun.contract.answer import PeerSource
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CacheUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STEP_5, STEP_7 = CheckpointId(attempt=1, step=5), CheckpointId(attempt=1, step=7)


class Node:
    """An agent whose disk has room for one checkpoint; of each the download can be held up."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "storage").mkdir()
        run = RunStore(open_store(f"file://{folder}/storage"), "run")
        for checkpoint in (STEP_5, STEP_7):
            path = folder / "model.pt"
            path.write_bytes(self.content(checkpoint))
            write_part(
                run,
                attempt=1,
                step=checkpoint.step,
                worker=0,
                workers=1,
                files=[LocalFile(name="model.pt", path=path, rank=0)],
                metrics={},
            )
            commit_if_complete(run, attempt=1, step=checkpoint.step)
        self.config = a_config(folder)
        self.storage = AsyncRunStore(self.config)
        self.held: CheckpointId | None = None
        self.begun, self.go = threading.Event(), threading.Event()
        read = FileStore.get_file

        def get_file(store: FileStore, key: str, path: Path, **expected: int) -> None:
            if self.held is not None and f"{self.held.name}/" in key:
                self.begun.set()
                assert self.go.wait(20)
            if list(path.parents[4].glob("*/*/files/*/*")):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            read(store, key, path, **expected)  # type: ignore[arg-type]

        monkeypatch.setattr(FileStore, "get_file", get_file)

    @property
    def downloads(self) -> Downloads:
        return self.storage.downloads

    @staticmethod
    def content(checkpoint: CheckpointId) -> bytes:
        return checkpoint.name.encode()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    made = Node(tmp_path, monkeypatch)
    yield made
    made.storage.close()


@pytest.mark.case(
    "storage",
    "The worker's disk has no room for the checkpoint to resume from",
    counted="maxFailures",
)
async def test_the_next_resume_point_takes_the_room_of_the_last(node: Node) -> None:
    for checkpoint in (STEP_5, STEP_7):
        folder = await node.downloads.materialize(checkpoint, None)
        assert (folder / "model.pt").read_bytes() == node.content(checkpoint)


async def test_what_is_read_ahead_takes_the_room_of_the_last_while_it_is_wanted(node: Node) -> None:
    folder = await node.downloads.materialize(STEP_5, None)
    wanted = iter([True, False])  # it is when the download begins, and not once it has failed
    with pytest.raises(CacheUnusable, match="No space left on device"):
        await node.downloads.prefetch(STEP_7, (0,), lambda: next(wanted))
    assert (folder / "model.pt").exists()
    await node.downloads.prefetch(STEP_7, (0,), lambda: True)
    assert not folder.exists()


async def test_a_download_of_an_attempt_that_has_ended_takes_no_room_from_the_next(
    node: Node,
) -> None:
    """Its thread goes on when its processes are gone; the next attempt resumes from another one,
    since this one turned out to be damaged elsewhere."""
    node.held = STEP_7
    late = asyncio.create_task(node.downloads.materialize(STEP_7, None))
    assert await asyncio.to_thread(node.begun.wait, 20)
    late.cancel()  # the connection of its process is closed
    folder = await node.downloads.materialize(STEP_5, None)
    node.go.set()
    await asyncio.to_thread(node.storage._pool.shutdown)  # waits for that thread
    assert (folder / "model.pt").read_bytes() == node.content(STEP_5)


async def test_a_peer_takes_no_room_for_another_checkpoint_than_ours(node: Node) -> None:
    folder = await node.downloads.materialize(STEP_5, None)
    with pytest.raises(CacheUnusable, match="No space left on device"):
        await node.downloads.obtain(STEP_7.name, "worker-00000/model.pt")
    assert (folder / "model.pt").exists()


async def test_a_copy_for_which_there_is_no_room_is_not_read_from_the_store_instead(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The store's would not fit either. Once there is room it is copied."""
    sharing = Sharing(node.downloads, "Secret")
    sharing.open("127.0.0.1")
    copies = Copying(PeerSource(address=sharing.address, secret="Secret"), STEP_5.name)
    content = node.content(STEP_5)
    file = CachedFile(
        name="model.pt",
        source="worker-00000/model.pt",
        size=len(content),
        crc32=zlib.crc32(content),
    )
    receive, full = downloads._receive, [errno.EDQUOT, errno.ENOSPC]

    def receive_on_a_full_disk(answer: object, file: CachedFile, path: Path) -> None:
        if full:
            raise OSError(number := full.pop(), os.strerror(number))
        receive(answer, file, path)  # type: ignore[arg-type]

    monkeypatch.setattr(downloads, "_receive", receive_on_a_full_disk)
    for reason in ("No space left on device", "Disk quota exceeded"):
        with pytest.raises(OSError, match=reason):
            await asyncio.to_thread(copies.copy, file, tmp_path / "copied")
    assert await asyncio.to_thread(copies.copy, file, tmp_path / "copied")
    assert (tmp_path / "copied").read_bytes() == content
    assert "the store is read instead" not in caplog.text
    copies.close()
    sharing.close()
