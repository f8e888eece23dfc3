"""What a directory holds besides bytes: links, empty folders, modes and times come back."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import Bench, checkpoint_id, materialize, materialize_initial
from trainrun._common.tree import TreeEntry, walk
from trainrun._process.checkpoint_handle import Checkpoint
from trainrun._process.staging import Staging
from trainrun.checkpoint.records import Manifest, add_checksum
from trainrun.checkpoint.writer import commit_if_complete, scan, write_part
from trainrun.contract import layout
from trainrun.errors import CheckpointConflict, CheckpointDamaged

if TYPE_CHECKING:
    from trainrun.checkpoint.writer import LocalFile


def a_tree(folder: Path) -> Path:
    for name, age in (("step-20", 1), ("step-5", 3), ("step-10", 2)):
        (folder / name / "empty").mkdir(parents=True)
        (folder / name / "model.pt").write_text(name)
        for path in (folder / name / "empty", folder / name / "model.pt", folder / name):
            os.utime(path, (1e9 - age, 1e9 - age))
    (folder / "latest").symlink_to("step-20")
    (folder / "step-20" / "best.pt").symlink_to("../step-5/model.pt")
    (folder / "run.sh").write_text("resume")
    (folder / "run.sh").chmod(0o750)
    (folder / "step-10" / "empty").chmod(0o555)
    return folder


def store(bench: Bench, *files: list[LocalFile], step: int = 5) -> Manifest | None:
    for worker, brought in enumerate(files):
        write_part(
            bench.run,
            attempt=1,
            step=step,
            worker=worker,
            workers=len(files),
            files=brought,
            metrics={},
        )
    return commit_if_complete(bench.run, attempt=1, step=step)


@pytest.mark.case("storage", "A killed process left half a checkpoint in the script's own folder")
@pytest.mark.parametrize("whose", ["staging_directory", "the script's own"])
def test_a_checkpoint_comes_back_as_it_was_saved(bench: Bench, tmp_path: Path, whose: str) -> None:
    """Its links were copies, its empty folders were missing, and its times were arbitrary."""
    (tmp_path / "staging").mkdir()
    staging = Staging(tmp_path / "staging")
    own = whose == "staging_directory"
    saved = a_tree(staging.new_directory() if own else tmp_path / "saved")
    before = walk(saved)
    assert staging.check(saved, 5)
    staged = tmp_path / "staging" / staging.take(saved, 5).name
    assert walk(staged) == before
    manifest = store(bench, scan(staged, rank=0))
    assert manifest is not None
    for rank in (None, 0):
        cache = tmp_path / f"cache-{rank}"
        directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache, rank=rank)
        assert walk(directory) == before
        assert materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache, rank=rank) == directory
    uri = layout.checkpoint_uri(bench.run.uri, manifest.id)
    assert walk(materialize_initial(uri, cache_dir=tmp_path / "initial")) == before


def test_ranks_share_folders_and_links(bench: Bench, tmp_path: Path) -> None:
    for rank in range(2):
        folder = tmp_path / f"rank-{rank}"
        (folder / "shards").mkdir(parents=True)
        (folder / "shards" / f"{rank}.pt").write_text("x")
        (folder / "newest").symlink_to("shards")
        os.utime(folder / "shards", (1e9 + rank, 1e9 + rank))
    store(bench, *(scan(tmp_path / f"rank-{rank}", rank=rank) for rank in range(2)))
    directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=tmp_path / "cache")
    assert sorted(os.listdir(directory / "newest")) == ["0.pt", "1.pt"]
    assert (directory / "shards").stat().st_mtime == 1e9 + 1
    own = materialize(bench.run, checkpoint_id(1, 5), cache_dir=tmp_path / "cache", rank=1)
    assert os.listdir(own / "newest") == ["1.pt"]


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("a", "'last' of rank 0 links to 'b' and that of rank 1 to 'a'; give each rank's file"),
        ("", "'last' is a link of rank 0 and a file of rank 1; give each rank's file"),
        ("/", "'last' of rank 0 links to 'b' and that of rank 1 to 'a folder'; give each rank's"),
    ],
)
def test_links_that_differ_are_a_conflict(
    bench: Bench, tmp_path: Path, link: str, says: str
) -> None:
    for rank, target in enumerate(("b", link)):
        folder = tmp_path / f"rank-{rank}"
        folder.mkdir()
        (folder / f"own-{rank}").write_text("x")
        for name in "ab":
            (folder / name).write_text("the same")
        if target == "/":
            (folder / "last").mkdir()
        elif target:
            (folder / "last").symlink_to(target)
        else:
            (folder / "last").write_text("the same")
    with pytest.raises(CheckpointConflict) as caught:
        store(bench, *(scan(tmp_path / f"rank-{rank}", rank=rank) for rank in range(2)))
    assert says in str(caught.value)


def test_links_that_lead_out_of_the_directory_stand_for_what_they_lead_to(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    (saved / "sub").mkdir(parents=True)
    (tmp_path / "base.pt").write_text("base")
    (saved / "model.pt").write_text("model")
    (saved / "outside.pt").symlink_to("../base.pt")
    (saved / "sub" / "inside.pt").symlink_to(".././model.pt")
    assert {entry.name: entry.target for entry in walk(saved)} == {
        "model.pt": "",
        "outside.pt": "",
        "sub": "",
        "sub/inside.pt": "../model.pt",
    }
    (saved / "there").symlink_to(tmp_path)
    (tmp_path / "staging").mkdir()
    with pytest.raises(ValueError, match="is a link to a directory outside of the checkpoint; "):
        Staging(tmp_path / "staging").check(saved, 3)


@pytest.mark.parametrize("whose", ["staging_directory", "the script's own"])
def test_a_link_to_the_newest_folder_may_be_absolute(tmp_path: Path, whose: str) -> None:
    """`last.symlink_to(out / "000100")` failed every report."""
    (tmp_path / "staging").mkdir()
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to("disk")
    staging = Staging(tmp_path / "staging")
    saved = tmp_path / "home" / "saved"
    if whose == "staging_directory":
        saved = staging.new_directory()
    (saved / "000100" / "sub").mkdir(parents=True)
    (saved / "000100" / "model.pt").write_text("model")
    (saved / "last").symlink_to(saved / "000100")
    (saved / "000100" / "sub" / "best.pt").symlink_to(saved / "last" / "model.pt")
    (saved / "around.pt").symlink_to(f"../{saved.name}/000100/model.pt")
    assert staging.check(saved, 5)
    staged = tmp_path / "staging" / staging.take(saved, 5).name
    links = {"last": "000100", "000100/sub/best.pt": "../model.pt", "around.pt": "000100/model.pt"}
    assert {name: os.fspath((staged / name).readlink()) for name in links} == links
    assert {it.name: it.target for it in scan_links(staged)} == links


@pytest.mark.parametrize("whose", ["staging_directory", "the script's own"])
def test_links_that_lead_nowhere_in_the_directory_come_back_as_links(
    bench: Bench, tmp_path: Path, whose: str
) -> None:
    """A link to the best save, which had been deleted since, failed every report."""
    (tmp_path / "staging").mkdir()
    staging = Staging(tmp_path / "staging")
    own = whose == "staging_directory"
    saved = a_tree(staging.new_directory() if own else tmp_path / "saved")
    (saved / "best").symlink_to("step-1")
    (saved / "first").symlink_to(saved / "step-1" / "model.pt")
    (saved / "run").symlink_to("run.sh/none")
    (saved / "loop").symlink_to("loop")
    links = {"best": "step-1", "first": "step-1/model.pt", "run": "run.sh/none", "loop": "loop"}
    assert staging.check(saved, 5)
    store(bench, scan(tmp_path / "staging" / staging.take(saved, 5).name, rank=0))
    directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=tmp_path / "cache")
    restored = Checkpoint(directory).to_directory(tmp_path / "restored")
    for place in (directory, Path(restored)):
        assert {name: os.fspath((place / name).readlink()) for name in links} == links


def scan_links(folder: Path) -> list[TreeEntry]:
    return [item.other for item in scan(folder, rank=0) if item.other and item.other.target]


@pytest.mark.parametrize("target", ["/etc", "../..", "../../etc"])
def test_a_manifest_cannot_link_out_of_the_directory(
    bench: Bench, tmp_path: Path, target: str
) -> None:
    entry = TreeEntry(name="sub/link", target=target, ranks=(0,))
    manifest = Manifest(attempt=1, step=5, workers=1, others=(entry,))
    key = "digits/checkpoints/step-000000005-attempt-1/manifest.json"
    bench.run.store.put(key, add_checksum(manifest))
    with pytest.raises(CheckpointDamaged, match="the link 'sub/link' points outside"):
        materialize(bench.run, checkpoint_id(1, 5), cache_dir=tmp_path / "cache")
    bench.run.store.put(key, add_checksum(replace(manifest, others=(replace(entry, name="../x"),))))
    with pytest.raises(CheckpointDamaged, match=r"'../x' is not a valid file name"):
        materialize(bench.run, checkpoint_id(1, 5), cache_dir=tmp_path / "cache")


def test_a_file_is_verified_on_a_disk_that_keeps_whole_seconds(
    bench: Bench, tmp_path: Path
) -> None:
    bench.commit(step=5)
    cache = tmp_path / "cache"
    directory = materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)
    path = directory / "common.json"
    os.utime(path, (int(path.stat().st_mtime), int(path.stat().st_mtime)))
    inode = path.stat().st_ino
    materialize(bench.run, checkpoint_id(1, 5), cache_dir=cache)
    assert path.stat().st_ino == inode
