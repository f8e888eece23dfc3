"""A node's disk that is full of checkpoints: old ones go for the one that is needed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checkpoints import Bench, Through, checkpoint_id, materialize, read_directory
from tests.support.mounts import mounted
from trainrun.checkpoint.reader import checkpoint_on_node, read_manifest
from trainrun.checkpoint.run_store import RunStore
from trainrun.errors import CacheUnusable

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 100_000
"""Bytes of a checkpoint: two files of half of it."""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class SmallDisk(Through):
    """The cache's disk is full once it holds `room` checkpoints; counts what is read."""

    def __init__(self, bench: Bench, cache: Path, *, room: int, number: int = errno.ENOSPC) -> None:
        super().__init__(bench)
        self.room = room * SIZE
        self.number = number
        self.cache = cache
        self.read: list[str] = []
        self._lock = threading.Lock()
        self._under_way: dict[Path, int] = {}

    def get_file(self, key: str, path: Path, *, size: int, **expected: Any) -> None:
        with self._lock:  # files are read side by side
            held = sum(file.stat().st_size for file in self.cache.glob("*/*/files/*/*"))
            under_way = sum(bytes_ for file, bytes_ in self._under_way.items() if file.exists())
            path.write_bytes(b"half")
            if held + under_way + size > self.room:
                raise OSError(self.number, os.strerror(self.number))
            self._under_way[path] = size
        self.read.append(key.rpartition("/")[2])
        self._store.get_file(key, path, size=size, **expected)

    @property
    def run(self) -> RunStore:
        return RunStore(self, "digits")  # type: ignore[arg-type]


def content(step: int) -> dict[str, bytes]:
    return {f"{name}-{step}.pt": bytes([step]) * (SIZE // 2) for name in ("model", "optimizer")}


def store_some(bench: Bench, *steps: int) -> None:
    for step in steps:
        bench.part(step=step, files={0: content(step)}, whole=True)


def held(cache: Path) -> list[int]:
    """Steps of the checkpoints of which files are on the disk."""
    found = {path.parents[2].name for path in cache.glob("*/*/files/*/*")}
    return sorted(int(name.split("-")[1]) for name in found)


def test_a_disk_with_room_for_two_checkpoints_bears_any_number_of_restarts(
    bench: Bench, tmp_path: Path
) -> None:
    """From the third restart on each attempt failed: the disk was full of what nobody needed."""
    steps = (10, 20, 30, 40, 50)
    store_some(bench, *steps)
    with mounted(tmp_path / "disk", f"size={2 * SIZE + 90_000}") as disk:
        for step in steps:
            directory = materialize(bench.run, checkpoint_id(1, step), cache_dir=disk)
            assert read_directory(directory) == content(step)
        assert held(disk) == [40, 50]


@pytest.mark.case(
    "storage",
    "The worker's disk has no room for the checkpoint to resume from",
    counted="maxFailures",
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_the_oldest_go_one_by_one_and_no_more_than_needed(
    bench: Bench, cache: Path, number: int
) -> None:
    store_some(bench, 10, 20, 30)
    disk = SmallDisk(bench, cache, room=2, number=number)
    for step in (20, 10, 30):
        materialize(disk.run, checkpoint_id(1, step), cache_dir=cache)
    assert held(cache) == [20, 30]
    # What the full disk had taken already was not read again.
    assert sorted(disk.read[-2:]) == ["model-30.pt", "optimizer-30.pt"]
    assert len(disk.read) == 6


def test_on_a_disk_with_room_for_one_checkpoint_each_takes_the_place_of_the_last(
    bench: Bench, cache: Path
) -> None:
    store_some(bench, 10, 20)
    disk = SmallDisk(bench, cache, room=1)
    for step in (10, 20):
        directory = materialize(disk.run, checkpoint_id(1, step), cache_dir=cache)
        assert read_directory(directory) == content(step)
        assert held(cache) == [step]


def test_a_newer_one_that_was_set_aside_goes_for_the_one_before_it(
    bench: Bench, cache: Path
) -> None:
    store_some(bench, 10, 20, 30)
    disk = SmallDisk(bench, cache, room=2)
    for step in (10, 30, 20):
        materialize(disk.run, checkpoint_id(1, step), cache_dir=cache)
    assert held(cache) == [20, 30]  # the older one first
    disk.room = SIZE
    materialize(disk.run, checkpoint_id(1, 10), cache_dir=cache)
    assert held(cache) == [10]


def test_what_is_downloaded_right_now_does_not_go(bench: Bench, cache: Path) -> None:
    store_some(bench, 10, 20)
    disk = SmallDisk(bench, cache, room=1)
    directory = materialize(disk.run, checkpoint_id(1, 10), cache_dir=cache)
    [lock] = cache.glob(f"*/{checkpoint_id(1, 10).name}.lock")
    with lock.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(CacheUnusable, match="No space left on device"):
            materialize(disk.run, checkpoint_id(1, 20), cache_dir=cache)
    assert read_directory(directory) == content(10)
    materialize(disk.run, checkpoint_id(1, 20), cache_dir=cache)
    assert held(cache) == [20]


def test_nothing_goes_for_a_checkpoint_that_is_not_needed_any_more(
    bench: Bench, cache: Path
) -> None:
    store_some(bench, 10, 20)
    disk = SmallDisk(bench, cache, room=1)
    directory = materialize(disk.run, checkpoint_id(1, 10), cache_dir=cache)
    manifest = read_manifest(disk.run, checkpoint_id(1, 20))
    files = checkpoint_on_node(disk.run, manifest, cache_dir=cache)
    with pytest.raises(CacheUnusable, match="No space left on device"):
        files.directory(needed=lambda: False)
    with pytest.raises(CacheUnusable, match="No space left on device"):
        files.download("worker-00000/model-20.pt", needed=lambda: False)
    assert read_directory(directory) == content(10)
    assert files.download("worker-00000/model-20.pt").read_bytes() == content(20)["model-20.pt"]
    assert held(cache) == [20]


def test_a_disk_that_is_too_small_for_one_checkpoint_is_told_with_its_size(
    bench: Bench, cache: Path
) -> None:
    store_some(bench, 10, 20)
    disk = SmallDisk(bench, cache, room=1)
    materialize(disk.run, checkpoint_id(1, 10), cache_dir=cache)
    disk.room = SIZE // 2
    with pytest.raises(CacheUnusable) as caught:
        materialize(disk.run, checkpoint_id(1, 20), cache_dir=cache)
    assert re.fullmatch(
        rf"cannot keep a checkpoint in {cache}/digits-\w+/{checkpoint_id(1, 20).name}: No space "
        "left on device; its disk must hold these 0.1 MB in addition to staged files: make room "
        "on it, or raise the worker's ephemeral storage",
        str(caught.value),
    )
    assert held(cache) == [20]  # half of it, which a retry goes on with
    assert not list(cache.glob("*/*/partial/*/*"))
