"""What a node has stored it need not download: kept in its cache, unless somebody may change it."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, Through, checkpoint_id, materialize, read_directory
from trainrun.checkpoint.reader import keep_on_node
from trainrun.checkpoint.run_store import RunStore
from trainrun.checkpoint.writer import Upload, commit_if_complete, scan, write_part

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Counting(Through):
    """Counts downloads."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.downloads: list[str] = []

    def get_file(self, key: str, path: Path, **expected: int) -> None:
        self.downloads.append(key.rpartition("/")[2])
        self._store.get_file(key, path, **expected)  # type: ignore[arg-type]


class Node:
    """Worker 0 and its cache."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.store = Counting(bench)
        self.run = RunStore(self.store, bench.run.run_name)  # type: ignore[arg-type]
        self.cache, self.folder = folder / "cache", folder

    def save(self, files: Mapping[str, bytes], step: int = 5) -> Path:
        directory = self.folder / f"staged-{step}"
        for name, content in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
        return directory

    def store_and_keep(self, directory: Path, step: int = 5, *, in_use: int | None = None) -> None:
        upload = self.upload(directory, step)
        self.keep(directory, upload, step, in_use=in_use)

    def upload(self, directory: Path, step: int = 5, workers: int = 1) -> Upload:
        upload = Upload()
        write_part(
            self.run,
            attempt=1,
            step=step,
            worker=0,
            workers=workers,
            files=scan(directory, rank=0),
            metrics={},
            upload=upload,
        )
        commit_if_complete(self.run, attempt=1, step=step)
        return upload

    def keep(
        self, directory: Path, upload: Upload, step: int = 5, *, in_use: int | None = None
    ) -> None:
        keep_on_node(
            self.run,
            checkpoint_id(1, step),
            0,
            upload.arrived.values(),
            {0: directory},
            cache_dir=self.cache,
            in_use=checkpoint_id(1, in_use) if in_use is not None else None,
        )

    def read(self, step: int = 5) -> dict[str, bytes]:
        return read_directory(materialize(self.run, checkpoint_id(1, step), cache_dir=self.cache))

    @property
    def kept(self) -> set[int]:
        names = [path.name for path in self.cache.glob("*/*") if path.is_dir()]
        return {int(name.split("-")[1]) for name in names}


FILES = {"model/a.pt": b"a" * 1000, "b.pt": b"b"}


@pytest.fixture
def node(bench: Bench, tmp_path: Path) -> Node:
    return Node(bench, tmp_path)


def test_what_a_node_stored_is_not_downloaded(node: Node) -> None:
    node.store_and_keep(node.save(FILES))
    assert node.read() == FILES
    assert node.store.downloads == []


def test_only_files_of_other_workers_are_downloaded(bench: Bench, node: Node) -> None:
    directory = node.save(FILES)
    upload = node.upload(directory, workers=2)
    bench.part(step=5, worker=1, workers=2, files={1: {"c.pt": b"c"}})
    commit_if_complete(node.run, attempt=1, step=5)
    node.keep(directory, upload)
    assert node.read() == {**FILES, "c.pt": b"c"}
    assert node.store.downloads == ["c.pt"]


def test_a_file_that_was_changed_after_its_upload_is_downloaded(node: Node) -> None:
    directory = node.save(FILES)
    upload = node.upload(directory)
    (directory / "b.pt").write_bytes(b"X")
    node.keep(directory, upload)
    assert node.read() == FILES
    assert node.store.downloads == ["b.pt"]


def test_a_file_that_somebody_may_still_change_is_downloaded(node: Node) -> None:
    """Through a memory map a change may leave the modification time as it was."""
    directory = node.save(FILES)
    upload = node.upload(directory)
    with (directory / "model/a.pt").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    with mapped, (directory / "b.pt").open("ab"):
        node.keep(directory, upload)
    assert node.read() == FILES
    assert sorted(node.store.downloads) == ["a.pt", "b.pt"]


def test_a_file_that_is_changed_in_the_cache_is_downloaded(node: Node) -> None:
    node.store_and_keep(node.save(FILES))
    [path] = node.cache.rglob("b.pt")
    path.write_bytes(b"X")
    assert node.read() == FILES
    assert node.store.downloads == ["b.pt"]


def test_files_outside_of_the_staged_directory_stay_where_they_are(
    node: Node, tmp_path: Path
) -> None:
    outside = tmp_path / "mine.pt"
    outside.write_bytes(b"mine")
    directory = node.save(FILES)
    (directory / "link.pt").symlink_to(outside)
    os.link(directory / "b.pt", tmp_path / "b.pt")
    node.store_and_keep(directory)
    assert outside.read_bytes() == b"mine"
    assert node.read() == {**FILES, "link.pt": b"mine"}
    assert sorted(node.store.downloads) == ["b.pt", "link.pt"]


def test_the_two_newest_are_kept(node: Node) -> None:
    for step in (5, 10, 15):
        node.store_and_keep(node.save(FILES, step), step)
    assert node.kept == {10, 15}


def test_the_checkpoint_in_use_stays_beside_the_newest(node: Node) -> None:
    for step in (5, 10, 15):
        node.store_and_keep(node.save(FILES, step), step, in_use=5)
    assert node.kept == {5, 15}
