"""Writing parts and committing them; same names from several ranks."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.checkpoints import (
    Bench,
    Counting,
    checkpoint_id,
    contents,
    expected_directory,
    materialize,
    read_directory,
)
from trainrun.checkpoint.reader import read_manifest
from trainrun.checkpoint.writer import (
    Upload,
    commit_folder,
    commit_if_complete,
    open_steps,
    scan,
    write_part,
)
from trainrun.contract.answer import OpenStep
from trainrun.errors import CheckpointConflict, CheckpointDamaged, TransferCancelled

if TYPE_CHECKING:
    from pathlib import Path

REMEDY = (
    "give each rank's file its own name, such as model-rank{rank}.pt; where the ranks save into "
    "one folder, call torch.distributed.barrier() before they report it, or report a separate "
    "directory from each rank. whole=True is for a rank that saves everything itself"
)


def objects(bench: Bench) -> list[str]:
    """The object names of the only checkpoint."""
    return [item.key.split("/", 2)[2] for item in bench.run.objects("checkpoints/")]


def test_a_checkpoint_is_complete_when_every_worker_is_done(any_bench: Bench) -> None:
    bench = any_bench
    bench.part(step=3, worker=1, workers=2, files={1: contents(1, 3, 1)})
    assert commit_if_complete(bench.run, attempt=1, step=3) is None
    bench.part(step=3, worker=0, workers=2, files={0: contents(1, 3, 0)})
    manifest = commit_if_complete(bench.run, attempt=1, step=3)
    assert manifest is not None
    assert read_manifest(bench.run, checkpoint_id(1, 3)) == manifest
    directory = materialize(bench.run, manifest.id, cache_dir=bench.scratch / "cache")
    assert read_directory(directory) == expected_directory(1, 3)


def test_committing_again_gives_the_same_manifest(bench: Bench) -> None:
    manifest = bench.commit(step=3)
    assert commit_if_complete(bench.run, attempt=1, step=3) == manifest


def test_racing_commits_agree(any_bench: Bench) -> None:
    for worker in range(2):
        files = {worker: contents(1, 3, worker)}
        any_bench.part(step=3, worker=worker, workers=2, files=files)
    barrier = threading.Barrier(4)

    def commit(_: int) -> object:
        barrier.wait()
        return commit_if_complete(any_bench.run, attempt=1, step=3)

    with ThreadPoolExecutor(4) as pool:
        manifests = list(pool.map(commit, range(4)))
    assert all(item is not None and item == manifests[0] for item in manifests)


def test_a_worker_without_files_is_waited_for_and_then_done(bench: Bench) -> None:
    bench.part(step=3, worker=0, workers=2, files={0: {"model.pt": b"x"}})
    assert commit_if_complete(bench.run, attempt=1, step=3) is None
    assert open_steps(bench.run, attempt=1) == (OpenStep(step=3, slots=(0,)),)
    assert open_steps(bench.run, attempt=2) == ()
    bench.part(step=3, worker=1, workers=2, files={})
    assert commit_if_complete(bench.run, attempt=1, step=3) is not None
    assert open_steps(bench.run, attempt=1) == ()


def test_whole_commits_at_once_without_others(any_bench: Bench) -> None:
    files = {0: {"model.pt": b"x", "sub/more.txt": b"y"}}
    manifest = any_bench.part(step=3, worker=0, workers=4, files=files, whole=True)
    assert manifest is not None
    assert manifest.whole
    assert read_manifest(any_bench.run, checkpoint_id(1, 3)) == manifest


def test_whole_from_two_workers_with_the_same_content_is_stored_once(bench: Bench) -> None:
    files = {"model.pt": b"x"}
    first = bench.part(step=3, worker=0, workers=2, files={0: files}, whole=True)
    second = bench.part(step=3, worker=1, workers=2, files={1: files}, whole=True)
    assert first == second
    assert objects(bench) == ["manifest.json", "worker-00000/model.pt"]


def test_whole_from_a_rank_that_comes_later_never_deletes_what_is_committed(bench: Bench) -> None:
    bench.part(step=3, files={0: {"a": b"1"}}, whole=True)
    bench.part(step=3, files={0: {"a": b"1"}, 1: {"a": b"1"}}, whole=True)
    directory = materialize(bench.run, checkpoint_id(1, 3), cache_dir=bench.scratch / "cache")
    assert read_directory(directory) == {"a": b"1"}


def test_parts_of_others_never_delete_what_is_committed_as_whole(bench: Bench) -> None:
    bench.part(step=3, worker=0, workers=2, files={0: {"a": b"1"}})
    bench.part(step=3, worker=1, workers=2, files={1: {"a": b"1"}})
    folder = bench.run.folder(checkpoint_id(1, 3))
    bench.part(step=3, worker=1, workers=2, files={1: {"a": b"1"}}, whole=True)
    assert commit_folder(bench.run, folder) is not None
    directory = materialize(bench.run, checkpoint_id(1, 3), cache_dir=bench.scratch / "cache")
    assert read_directory(directory) == {"a": b"1"}


def test_whole_from_two_workers_with_different_content_names_both_ranks(bench: Bench) -> None:
    bench.part(step=3, worker=0, workers=2, files={0: {"model.pt": b"x"}}, whole=True)
    with pytest.raises(CheckpointConflict) as caught:
        bench.part(step=3, worker=1, workers=2, files={7: {"model.pt": b"y"}}, whole=True)
    assert str(caught.value) == (
        "checkpoint of step 3: rank 7 and rank 0 both reported files with whole=True, and they "
        "differ; report whole=True only from the rank that saves everything, or leave it out on "
        "all ranks"
    )


def test_the_same_content_from_ranks_of_one_worker_is_stored_once(bench: Bench) -> None:
    bench.part(step=3, files={0: {"a.json": b"same"}, 1: {"a.json": b"same", "b": b"1"}})
    manifest = commit_if_complete(bench.run, attempt=1, step=3)
    assert manifest is not None
    assert [(item.name, item.ranks) for item in manifest.files] == [
        ("a.json", (0, 1)),
        ("b", (1,)),
    ]
    assert objects(bench).count("worker-00000/a.json") == 1


def test_the_same_content_from_two_workers_is_stored_once(any_bench: Bench) -> None:
    any_bench.commit(step=3)
    assert [name for name in objects(any_bench) if "common" in name] == ["worker-00000/common.json"]


@pytest.mark.case(
    "script", "Two ranks bring one file name with different content", counted="the run fails"
)
@pytest.mark.parametrize("workers", [1, 2])
def test_different_content_under_one_name_names_both_ranks_and_the_remedy(
    bench: Bench, workers: int
) -> None:
    files = {0: {"model.pt": b"one"}, 3: {"model.pt": b"three"}}

    def bring() -> None:
        if workers == 1:
            bench.part(step=12, files=files)
        for worker, rank in enumerate(files):
            bench.part(step=12, worker=worker, workers=2, files={rank: files[rank]})
        commit_if_complete(bench.run, attempt=1, step=12)

    with pytest.raises(CheckpointConflict) as caught:
        bring()
    assert str(caught.value) == (
        "checkpoint of step 12: rank 0 and rank 3 both saved 'model.pt' with different content "
        f"(3 and 5 bytes); {REMEDY}"
    )
    assert not bench.run.folder(checkpoint_id(1, 12)).has_manifest


def test_different_content_of_one_size_is_told_apart(bench: Bench) -> None:
    with pytest.raises(CheckpointConflict, match=r"different content \(CRC32 \w{8} and \w{8}\)"):
        bench.part(step=1, files={0: {"model.pt": b"one"}, 1: {"model.pt": b"two"}})


def test_a_file_in_the_way_of_a_folder_is_a_conflict(bench: Bench) -> None:
    with pytest.raises(CheckpointConflict) as caught:
        bench.part(step=1, files={0: {"model": b"x"}, 1: {"model/part": b"y"}})
    assert str(caught.value) == (
        "checkpoint of step 1: 'model' is a file of rank 0 and a folder of rank 1; " + REMEDY
    )


def test_a_marker_whose_file_is_gone_is_not_committed(bench: Bench, folder: Path) -> None:
    bench.part(step=3, files={0: {"model.pt": b"x"}})
    (folder / "checkpoints/step-000000003-attempt-1/worker-00000/model.pt").unlink()
    message = re.escape("step-000000003-attempt-1/worker-00000/model.pt: missing")
    with pytest.raises(CheckpointDamaged, match=message):
        commit_if_complete(bench.run, attempt=1, step=3)


def test_markers_of_different_worlds_are_not_committed(bench: Bench) -> None:
    bench.part(step=3, worker=0, workers=2, files={0: {"a": b"x"}})
    bench.part(step=3, worker=1, workers=3, files={1: {"b": b"x"}})
    with pytest.raises(CheckpointDamaged, match="its done markers contradict each other"):
        commit_if_complete(bench.run, attempt=1, step=3)


def test_two_workers_with_one_number_are_noticed(bench: Bench) -> None:
    bench.part(step=3, worker=0, workers=2, files={0: {"a": b"x"}})
    with pytest.raises(CheckpointConflict, match=r"worker-00000\.done\.json already exists"):
        bench.part(step=3, worker=0, workers=2, files={0: {"a": b"other"}})


def test_a_part_may_be_written_again(bench: Bench) -> None:
    for _ in range(2):
        bench.part(step=3, files={0: {"a": b"x"}})
    assert commit_if_complete(bench.run, attempt=1, step=3) is not None


def test_a_part_that_was_given_up_continues_where_it_stopped(bench: Bench) -> None:
    files = bench.save(0, {f"file-{n}": bytes([n]) * 100 for n in range(20)})
    upload = Upload()
    upload.cancel()

    def write(upload: Upload) -> None:
        write_part(
            bench.run,
            attempt=1,
            step=3,
            worker=0,
            workers=1,
            files=files,
            metrics={},
            upload=upload,
        )

    with pytest.raises(TransferCancelled):
        write(upload)
    assert commit_if_complete(bench.run, attempt=1, step=3) is None
    again = Counting()
    write(again)
    assert again.moved == 2000
    write(again)
    assert again.moved == 2000
    assert commit_if_complete(bench.run, attempt=1, step=3) is not None


def test_a_part_that_was_given_up_before_it_was_read_leaves_no_marker(
    bench: Bench, tmp_path: Path
) -> None:
    directory = tmp_path / "being-removed"
    directory.mkdir()  # its files have gone already
    upload = Upload()
    upload.cancel()
    with pytest.raises(TransferCancelled):
        write_part(
            bench.run,
            attempt=1,
            step=3,
            worker=0,
            workers=1,
            files=scan(directory, rank=0),
            metrics={},
            upload=upload,
        )
    assert objects(bench) == []


def test_metrics_are_those_of_the_lowest_worker(bench: Bench) -> None:
    assert bench.commit(step=7).metrics == {"loss": 7.0, "worker": 0}


def test_the_manifest_knows_sizes_ranks_and_workers(bench: Bench) -> None:
    manifest = bench.commit(step=7)
    assert manifest.workers == 2
    assert manifest.size_bytes == sum(len(data) for data in expected_directory(1, 7).values())
    assert {item.name: item.ranks for item in manifest.files} == {
        "common.json": (0, 1),
        "model-rank0.pt": (0,),
        "model-rank1.pt": (1,),
    }


def test_hidden_files_and_links_are_brought_and_loops_are_not_followed(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "saved"
    (directory / "sub").mkdir(parents=True)
    (directory / ".metadata").write_bytes(b"m")
    (tmp_path / "outside").write_bytes(b"o")
    (directory / "link").symlink_to(tmp_path / "outside")
    (directory / "sub" / "loop").symlink_to(directory)
    found = scan(directory, rank=0)
    assert [item.name for item in found] == [".metadata", "link", "sub", "sub/loop"]
    assert [item.other.target for item in found if item.other] == ["", ".."]


def test_a_name_that_no_store_can_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad-\udcff").touch()
    with pytest.raises(CheckpointConflict, match=r"rank 3 saved .*: its name is not UTF-8"):
        scan(tmp_path, rank=3)


def test_a_reserved_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".trainrun-tmp-x").touch()
    with pytest.raises(CheckpointConflict, match=r"names that start with \.trainrun-tmp- are"):
        scan(tmp_path, rank=3)
