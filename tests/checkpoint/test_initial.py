"""Initial weights: a checkpoint of some run, or any folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, expected_directory, materialize_initial, read_directory
from trainrun.checkpoint.run_store import open_store
from trainrun.contract import layout
from trainrun.errors import CheckpointDamaged, StoreMisconfigured

if TYPE_CHECKING:
    from pathlib import Path


def test_a_checkpoint_of_a_run_is_read_merged_and_verified(
    any_bench: Bench, tmp_path: Path
) -> None:
    manifest = any_bench.commit(step=5)
    uri = layout.checkpoint_uri(any_bench.run.uri, manifest.id)
    directory = materialize_initial(uri + "/", cache_dir=tmp_path / "cache")
    assert read_directory(directory) == expected_directory(1, 5)


def test_a_copied_checkpoint_is_read_the_same(bench: Bench, folder: Path, tmp_path: Path) -> None:
    name = bench.commit(step=5).id.name
    shutil.copytree(folder / "checkpoints" / name, tmp_path / "weights")
    directory = materialize_initial(f"file://{tmp_path}/weights", cache_dir=tmp_path / "cache")
    assert read_directory(directory) == expected_directory(1, 5)


def test_damage_is_found(bench: Bench, folder: Path, tmp_path: Path) -> None:
    manifest = bench.commit(step=5)
    path = folder / "checkpoints" / manifest.id.name / "worker-00000" / "model-rank0.pt"
    path.write_bytes(bytes(2000))
    with pytest.raises(CheckpointDamaged, match=r"model-rank0\.pt: CRC32"):
        materialize_initial(
            layout.checkpoint_uri(bench.run.uri, manifest.id), cache_dir=tmp_path / "cache"
        )


def test_a_checkpoint_without_manifest_was_never_committed(
    bench: Bench, folder: Path, tmp_path: Path
) -> None:
    manifest = bench.commit(step=5)
    (folder / "checkpoints" / manifest.id.name / "manifest.json").unlink()
    with pytest.raises(CheckpointDamaged, match="was never committed"):
        materialize_initial(
            layout.checkpoint_uri(bench.run.uri, manifest.id), cache_dir=tmp_path / "cache"
        )


def test_any_folder_of_files_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "weights" / "sub").mkdir(parents=True)
    (tmp_path / "weights" / "sub" / "a.bin").write_bytes(b"a")
    (tmp_path / "weights" / "manifest.json").write_text('{"made by": "somebody else"}')
    directory = materialize_initial(f"file://{tmp_path}/weights", cache_dir=tmp_path / "cache")
    assert directory == tmp_path / "weights"


def test_a_folder_in_a_bucket_is_downloaded_once_and_again_when_it_changes(
    s3_uri: str, tmp_path: Path
) -> None:
    store = open_store(s3_uri)
    store.put("sub/a.bin", b"a")
    store.put("b.bin", b"b")
    first = materialize_initial(s3_uri, cache_dir=tmp_path)
    assert read_directory(first) == {"sub/a.bin": b"a", "b.bin": b"b"}
    assert materialize_initial(s3_uri, cache_dir=tmp_path) == first
    store.put("b.bin", b"c")
    second = materialize_initial(s3_uri, cache_dir=tmp_path)
    assert read_directory(second) == {"sub/a.bin": b"a", "b.bin": b"c"}
    store.close()


def test_an_empty_place_says_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreMisconfigured, match=r"has no files; checkpoint\.initialFrom must"):
        materialize_initial(f"file://{tmp_path}/empty", cache_dir=tmp_path / "cache")
