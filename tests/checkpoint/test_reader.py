"""Reading checkpoints: once per node, verified, merged; and what is never visible."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checkpoints import (
    Bench,
    checkpoint_id,
    contents,
    expected_directory,
    materialize,
    read_directory,
)
from tests.support.eventually import eventually
from trainrun.checkpoint.reader import checkpoint_on_node, only, read_manifest
from trainrun.checkpoint.records import Manifest, ManifestFile, add_checksum
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.writer import scan, write_part
from trainrun.errors import CacheUnusable, CheckpointDamaged, ObjectNotFound

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


class Counting:
    """Counts downloads; everything else goes to the real store."""

    def __init__(self, run: RunStore) -> None:
        self.inner = run.store
        self.downloads: list[str] = []
        self.hold = threading.Event()
        self.hold.set()

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def get_file(self, key: str, path: Path, **expected: int) -> None:
        self.downloads.append(key.rpartition("/")[2])
        self.inner.get_file(key, path, **expected)
        assert self.hold.wait(20)


def counting(bench: Bench) -> tuple[RunStore, Counting]:
    store = Counting(bench.run)
    return RunStore(store, bench.run.run_name), store  # type: ignore[arg-type]


def test_all_ranks_files_are_one_merged_directory(any_bench: Bench, cache: Path) -> None:
    any_bench.commit(step=5)
    directory = materialize(any_bench.run, checkpoint_id(1, 5), cache_dir=cache)
    assert read_directory(directory) == expected_directory(1, 5)


@pytest.mark.parametrize("rank", [0, 1])
def test_one_ranks_directory_has_only_what_it_brought(
    any_bench: Bench, cache: Path, rank: int
) -> None:
    any_bench.commit(step=5)
    directory = materialize(any_bench.run, checkpoint_id(1, 5), cache_dir=cache, rank=rank)
    assert read_directory(directory) == contents(1, 5, rank)


def test_a_rank_that_brought_nothing_gets_an_empty_directory(bench: Bench, cache: Path) -> None:
    bench.commit(step=5)
    directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache, rank=9)
    assert read_directory(directory) == {}


def test_scripts_can_read_their_step_from_the_folders_name(bench: Bench, cache: Path) -> None:
    """Accelerate's examples do; they stopped with "invalid literal for int(): 'all'"."""
    bench.commit(step=5)
    for rank in (None, 0):
        path = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache, rank=rank)
        assert path.name == "step_5"


def test_a_node_downloads_each_file_once(bench: Bench, cache: Path) -> None:
    bench.commit(step=5)
    run, store = counting(bench)
    with ThreadPoolExecutor(6) as pool:
        ranks: list[int | None] = [None, 0, 1] * 2
        list(
            pool.map(
                lambda rank: materialize(run, checkpoint_id(1, 5), cache_dir=cache, rank=rank),
                ranks,
            )
        )
    assert sorted(store.downloads) == ["common.json", "model-rank0.pt", "model-rank1.pt"]


def test_a_download_is_not_visible_before_it_is_whole(bench: Bench, cache: Path) -> None:
    bench.commit(step=5)
    run, store = counting(bench)
    store.hold.clear()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(materialize, run, checkpoint_id(1, 5), cache_dir=cache)
        eventually(lambda: store.downloads)
        assert not list(cache.glob("*/*/views/*"))
        assert not [path for path in cache.glob("*/*/files/*/*") if path.is_file()]
        store.hold.set()
        assert read_directory(future.result()) == expected_directory(1, 5)


def _download_and_die(uri: str, cache: Path) -> None:
    run = RunStore(open_store(uri), "digits")
    store = Counting(run)
    store.hold.clear()
    threading.Timer(0.3, os._exit, [9]).start()
    materialize(RunStore(store, "digits"), checkpoint_id(1, 5), cache_dir=cache)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_download_that_was_killed_is_finished_by_the_next(bench: Bench, cache: Path) -> None:
    bench.commit(step=5)
    uri = bench.run.store.uri
    child = multiprocessing.get_context("spawn").Process(
        target=_download_and_die, args=(uri, cache)
    )
    child.start()
    child.join()
    assert child.exitcode == 9
    directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)
    assert read_directory(directory) == expected_directory(1, 5)


@pytest.mark.parametrize("rank", [None, 0])
def test_a_file_that_somebody_changed_is_downloaded_again(
    bench: Bench, cache: Path, rank: int | None
) -> None:
    bench.commit(step=5)
    directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache, rank=rank)
    with (directory / "model-rank0.pt").open("r+b") as target:
        target.write(b"X")
    again = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)
    assert read_directory(again) == expected_directory(1, 5)


def test_a_file_that_somebody_removed_is_there_again(bench: Bench, cache: Path) -> None:
    bench.commit(step=5)
    directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)
    (directory / "common.json").unlink()
    materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)
    assert read_directory(directory) == expected_directory(1, 5)


def test_what_was_downloaded_before_the_machine_restarted_is_not_trusted(
    bench: Bench, cache: Path
) -> None:
    bench.commit(step=5)
    run, store = counting(bench)
    materialize(run, checkpoint_id(1, 5), cache_dir=cache)
    (boot,) = cache.glob("*/*/boot")
    boot.write_text("another boot")
    directory = materialize(run, checkpoint_id(1, 5), cache_dir=cache)
    assert len(store.downloads) == 6
    assert read_directory(directory) == expected_directory(1, 5)


def test_the_cache_keeps_the_two_newest_checkpoints(bench: Bench, cache: Path) -> None:
    for step in (5, 10, 15):
        bench.commit(step=step)
        materialize(bench.run, checkpoint_id(1, step), cache_dir=cache)
    kept = {path.name for path in cache.glob("*/*") if path.is_dir()}
    assert kept == {checkpoint_id(1, step).name for step in (10, 15)}


def test_the_checkpoint_that_was_asked_for_stays_when_newer_ones_are_damaged(
    bench: Bench, cache: Path
) -> None:
    for step in (5, 10, 15):
        bench.commit(step=step)
    for step in (15, 10):
        [damaged] = (bench.scratch.parent / "store").rglob(f"*{step}-*/*0/model-rank0.pt")
        damaged.write_bytes(b"?" * damaged.stat().st_size)
        with pytest.raises(CheckpointDamaged):
            materialize(bench.run, checkpoint_id(1, step), cache_dir=cache)
    directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)
    assert read_directory(directory) == expected_directory(1, 5)


def test_damage_leaves_nothing_visible_and_names_the_object(any_bench: Bench, cache: Path) -> None:
    any_bench.commit(step=5)
    name = "step-000000005-attempt-1/worker-00001/model-rank1.pt"
    key = f"digits/checkpoints/{name}"
    any_bench.run.store.put(key, bytes(2000))
    with pytest.raises(CheckpointDamaged) as caught:
        materialize(any_bench.run, checkpoint_id(1, 5), cache_dir=cache)
    assert f"{name}: CRC32" in str(caught.value)
    assert not list(cache.glob("*/*/views/*"))
    any_bench.run.store.put(key, contents(1, 5, 1)["model-rank1.pt"])
    directory = materialize(any_bench.run, checkpoint_id(1, 5), cache_dir=cache)
    assert read_directory(directory) == expected_directory(1, 5)


def test_missing_objects_are_damage(any_bench: Bench, cache: Path) -> None:
    any_bench.commit(step=5)
    prefix = "checkpoints/step-000000005-attempt-1"
    any_bench.run.delete([f"{prefix}/worker-00001/model-rank1.pt"])
    with pytest.raises(CheckpointDamaged, match=r"worker-00001/model-rank1\.pt: missing"):
        materialize(any_bench.run, checkpoint_id(1, 5), cache_dir=cache)
    any_bench.run.delete([f"{prefix}/manifest.json"])
    with pytest.raises(CheckpointDamaged, match=r"attempt-1/manifest\.json: missing"):
        materialize(any_bench.run, checkpoint_id(1, 5), cache_dir=cache)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", ".", "a//b", ""])
def test_a_manifest_cannot_write_outside_the_directory(
    bench: Bench, cache: Path, name: str
) -> None:
    item = ManifestFile(name=name, size=1, crc32=zlib.crc32(b"x"), worker=0, ranks=(0,))
    manifest = Manifest(attempt=1, step=5, workers=1, files=(item,))
    bench.run.store.put(
        "digits/checkpoints/step-000000005-attempt-1/manifest.json", add_checksum(manifest)
    )
    with pytest.raises(CheckpointDamaged, match="is not a valid file name in a checkpoint"):
        materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)


def test_a_manifest_in_the_wrong_folder_is_damage(bench: Bench, cache: Path) -> None:
    manifest = add_checksum(Manifest(attempt=1, step=6, workers=1))
    bench.run.store.put("digits/checkpoints/step-000000005-attempt-1/manifest.json", manifest)
    with pytest.raises(CheckpointDamaged, match="it belongs to step-000000006-attempt-1"):
        materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)


def test_a_cache_that_cannot_be_written_is_no_damage(bench: Bench, cache: Path) -> None:
    bench.commit(step=5)
    cache.write_text("a file where the folder should be")
    with pytest.raises(CacheUnusable, match="cannot keep a checkpoint in"):
        materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)


def test_two_runs_of_one_name_in_different_stores_do_not_mix(
    bench: Bench, cache: Path, tmp_path: Path
) -> None:
    bench.commit(step=5)
    other = open_store(f"file://{tmp_path}/other")
    other.probe()
    second = Bench(run=RunStore(other, "digits"), scratch=tmp_path / "scratch-2")
    second.part(step=5, files={0: {"only": b"here"}}, whole=True)
    materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)
    directory = materialize(second.run, checkpoint_id(1, 5), cache_dir=cache)
    assert read_directory(directory) == {"only": b"here"}


def test_an_absent_checkpoint_is_damage_and_not_an_internal_error(
    bench: Bench, cache: Path
) -> None:
    with pytest.raises(CheckpointDamaged):
        materialize(bench.run, checkpoint_id(7, 7), cache_dir=cache)
    with pytest.raises(ObjectNotFound):
        bench.run.manifest(checkpoint_id(7, 7))


def test_metrics_survive(bench: Bench) -> None:
    manifest = bench.commit(step=5)
    stored = json.loads(
        bench.run.store.get("digits/checkpoints/step-000000005-attempt-1/manifest.json")
    )
    assert stored["metrics"] == manifest.metrics == {"loss": 5.0, "worker": 0}


def test_many_files_are_read_together(bench: Bench, tmp_path: Path) -> None:
    """One after the other, a thousand took three times as long as their upload."""
    names = {f"part-{number}.pt": f"{number}".encode() for number in range(12)}
    bench.part(step=1, files={0: names}, whole=True)
    together = threading.Barrier(4, timeout=20)

    class Waiting:
        """A store whose reads wait for three others."""

        def __getattr__(self, name: str) -> object:
            return getattr(bench.run.store, name)

        def get_file(self, key: str, path: Path, **expected: Any) -> None:
            together.wait()
            bench.run.store.get_file(key, path, **expected)

    run = RunStore(Waiting(), "digits")  # type: ignore[arg-type]
    directory = materialize(run, checkpoint_id(1, 1), cache_dir=tmp_path / "cache")
    assert read_directory(directory) == names


def test_what_a_killed_download_has_left_is_removed(bench: Bench, tmp_path: Path) -> None:
    bench.commit(step=5)
    cache = tmp_path / "cache"
    directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)
    left = directory.parents[1] / "partial" / "worker-00000" / "model-rank0.pt"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"half")
    assert materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache, rank=0)
    assert not left.exists()


def included(run: RunStore, cache: Path, *include: str) -> Path:
    manifest = read_manifest(run, checkpoint_id(1, 5))
    return only(checkpoint_on_node(run, manifest, cache_dir=cache), include).directory()


def test_only_the_files_that_are_asked_for_are_downloaded(bench: Bench, cache: Path) -> None:
    files = {"model/a.pt": b"a", "model/more/b.pt": b"b", "optimizer.pt": b"o"}
    bench.part(step=5, files={0: files}, whole=True)
    run, store = counting(bench)
    directory = included(run, cache, "model/*")
    assert directory.name == "step_5"
    assert read_directory(directory) == {"model/a.pt": b"a", "model/more/b.pt": b"b"}
    assert sorted(store.downloads) == ["a.pt", "b.pt"]
    assert read_directory(materialize(run, checkpoint_id(1, 5), cache_dir=cache)) == files
    assert sorted(store.downloads) == ["a.pt", "b.pt", "optimizer.pt"]


def test_what_a_link_leads_to_comes_with_it(bench: Bench, cache: Path) -> None:
    directory = bench.scratch / "linked"
    (directory / "step_[1]").mkdir(parents=True)
    (directory / "step_[1]/model.pt").write_bytes(b"m")
    (directory / "other.pt").write_bytes(b"o")
    (directory / "latest").symlink_to("step_[1]")
    write_part(
        bench.run,
        attempt=1,
        step=5,
        worker=0,
        workers=1,
        files=scan(directory, rank=0),
        metrics={},
        whole=True,
    )
    found = included(bench.run, cache, "latest")
    assert (found / "latest/model.pt").read_bytes() == b"m"
    assert not (found / "other.pt").exists()


def test_a_pattern_that_matches_nothing_is_told(bench: Bench, cache: Path) -> None:
    bench.commit(step=5)
    with pytest.raises(ObjectNotFound, match=r"has no file that matches include=\['modle/\*'\]"):
        included(bench.run, cache, "modle/*")
