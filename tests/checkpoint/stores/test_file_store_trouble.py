"""A folder that is away, read-only, full or in the way: typed errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import resource
import subprocess
import zlib
from pathlib import Path

import pytest

from tests.support.checkpoints import (
    Bench,
    checkpoint_id,
    expected_directory,
    materialize,
    read_directory,
)
from tests.support.mounts import mounted
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.errors import (
    CacheUnusable,
    PutIfAbsentUnsupported,
    StoreDenied,
    StoreFull,
    StoreMisconfigured,
    StoreUnavailable,
)


def leftovers(directory: Path) -> list[Path]:
    return list(directory.rglob(".trainrun-tmp-*"))


def test_a_folder_that_does_not_exist_is_made_only_while_nothing_is_committed(
    tmp_path: Path,
) -> None:
    store = open_store(f"file://{tmp_path}/not/there")
    for call in (lambda: store.list(""), lambda: store.get("a"), lambda: store.put("a", b"")):
        with pytest.raises(StoreUnavailable) as caught:
            call()
        message = f"the folder {tmp_path}/not/there does not exist; is the volume mounted?"
        assert message in str(caught.value)
    bench = Bench(run=RunStore(store, "digits"), scratch=tmp_path / "scratch")
    assert bench.resolve(2, committed=checkpoint_id(1, 10)).outcome == "Unavailable"
    assert not (tmp_path / "not").exists()
    assert bench.resolve(1).outcome == "Resolved"


def test_a_read_only_volume_is_denied_with_a_remedy(tmp_path: Path) -> None:
    with mounted(tmp_path / "store", "size=1m") as root:
        bench = Bench(run=RunStore(open_store(f"file://{root}"), "digits"), scratch=tmp_path)
        bench.resolve(1)
        bench.commit(step=10)
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
        with pytest.raises(StoreDenied) as caught:
            bench.commit(step=20)
        assert "Read-only file system; the folder must be readable and writable for user" in str(
            caught.value
        )
        answer = bench.resolve(2)
        assert answer.outcome == "Misconfigured"
        assert "Read-only file system" in answer.message
        subprocess.run(["mount", "-o", "remount,rw", str(root)], check=True)
        assert bench.resolve(2).resume == checkpoint_id(1, 10)


def _put_as_nobody(uri: str, answers: multiprocessing.SimpleQueue[str]) -> None:
    os.setuid(65534)
    try:
        open_store(uri).put("run/a", b"x")
    except StoreDenied as error:
        answers.put(str(error))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_folder_without_permission_names_the_user(tmp_path: Path) -> None:
    for parent in [tmp_path, *tmp_path.parents][:3]:  # pytest's own folders are private
        parent.chmod(0o755)
    root = tmp_path / "store"
    root.mkdir(mode=0o755)
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    child = context.Process(target=_put_as_nobody, args=(f"file://{root}", answers))
    child.start()
    child.join()
    assert not answers.empty()
    message = answers.get()
    assert message.startswith(f"cannot write file://{root}/run/a: Permission denied")
    assert message.endswith("must be readable and writable for user 65534")


@pytest.mark.case("storage", "The storage is full")
def test_a_full_disk_costs_no_commit_and_leaves_no_litter(tmp_path: Path) -> None:
    with mounted(tmp_path / "store", "size=256k") as root:
        bench = Bench(run=RunStore(open_store(f"file://{root}"), "digits"), scratch=tmp_path)
        bench.resolve(1)
        bench.commit(step=10)
        with pytest.raises(StoreFull) as caught:
            bench.part(step=20, files={0: {"large": bytes(400_000)}})
        assert f"No space left on device; make room in {root}" in str(caught.value)
        assert not leftovers(root)
        assert bench.resolve(2).resume == checkpoint_id(1, 10)


def test_a_full_disk_during_a_claim_is_waited_for(tmp_path: Path) -> None:
    with mounted(tmp_path / "store", "size=256k") as root:
        bench = Bench(run=RunStore(open_store(f"file://{root}"), "digits"), scratch=tmp_path)
        bench.resolve(1)
        bench.commit(step=10)
        with contextlib.suppress(OSError), (root / "litter").open("wb", buffering=0) as litter:
            while True:
                litter.write(bytes(4096))
        answer = bench.resolve(2)
        assert answer.outcome == "Unavailable"
        assert "No space left on device" in answer.message
        (root / "litter").unlink()
        assert bench.resolve(2).resume == checkpoint_id(1, 10)


def test_a_full_cache_is_no_damage(bench: Bench, tmp_path: Path) -> None:
    bench.part(step=10, files={0: {"large": bytes(400_000)}}, whole=True)
    with mounted(tmp_path / "cache", "size=256k") as cache:
        with pytest.raises(CacheUnusable) as caught:
            materialize(bench.run, checkpoint_id(1, 10), cache_dir=cache)
        assert str(caught.value).endswith(
            "No space left on device; its disk must hold these 0.4 MB in addition to staged "
            "files: make room on it, or raise the worker's ephemeral storage"
        )
        subprocess.run(["mount", "-o", "remount,size=1m", str(cache)], check=True)
        directory = materialize(bench.run, checkpoint_id(1, 10), cache_dir=cache)
        assert read_directory(directory) == {"large": bytes(400_000)}


def _write_under_a_limit(uri: str, path: Path, answers: multiprocessing.SimpleQueue[str]) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        open_store(uri).put_file("run/large", path, crc32=zlib.crc32(path.read_bytes()))
    except StoreFull as error:
        answers.put(str(error))


@pytest.mark.slow
def test_a_file_size_limit_is_told_like_a_full_disk(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    store.probe()
    (tmp_path / "large").write_bytes(bytes(400_000))
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    child = context.Process(
        target=_write_under_a_limit, args=(store.uri, tmp_path / "large", answers)
    )
    child.start()
    child.join()
    assert not answers.empty()
    assert "cannot write" in (message := answers.get())
    assert "File too large" in message
    assert not leftovers(tmp_path)
    assert store.list("") == []


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    store.probe()
    store.put("run", b"a file")
    with pytest.raises(StoreMisconfigured, match="a file exists where a folder is needed"):
        store.put("run/a", b"x")


def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: object, target: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")  # what vfat and exfat answer

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(PutIfAbsentUnsupported) as caught:
        open_store(f"file://{tmp_path}/store").probe()
    assert "this file system has no hard links (Operation not permitted)" in str(caught.value)
    assert list((tmp_path / "store").iterdir()) == []


def test_a_file_system_whose_links_replace_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", os.replace)
    with pytest.raises(PutIfAbsentUnsupported, match="a hard link replaces an existing file"):
        open_store(f"file://{tmp_path}/store").probe()


def test_unfinished_files_are_invisible_and_go_with_their_checkpoint(
    bench: Bench, folder: Path
) -> None:
    checkpoint = bench.commit(step=10).id
    litter = folder / "checkpoints" / checkpoint.name / "worker-00000" / ".trainrun-tmp-dead"
    litter.write_bytes(b"half a file")
    assert not any("tmp" in name for name in bench.run.folder(checkpoint).sizes)
    bench.run.delete([item.key for item in bench.run.objects("checkpoints/")])
    assert not folder.exists()


@pytest.mark.case("storage", "Agents are killed while they upload files")
def test_what_killed_agents_had_under_way_is_deleted_by_the_next_attempt(
    bench: Bench, folder: Path
) -> None:
    """Each kill cost the room of up to four files for ever, and no list showed them."""
    kept = bench.commit(step=10).id
    bench.part(step=20, worker=0, workers=2, files={0: {"a": b"x"}})
    bench.resolve(1)
    bench.resolve(2)

    def under_way(attempt: int, step: int, worker: int, name: str = "") -> Path:
        place = folder / "checkpoints" / checkpoint_id(attempt, step).name / f"worker-0000{worker}"
        path = place / name / ".trainrun-tmp-dead"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half a file")
        return path

    beside_what_is_kept = under_way(1, 10, 0)
    beside_another_part = under_way(1, 20, 1)
    alone = under_way(1, 30, 0, "shards/of")
    of_this_attempt = under_way(2, 30, 0)
    retain(bench.run, attempt=1, keep=2)  # no longer the newest
    assert len(leftovers(folder)) == 4
    assert retain(bench.run, attempt=2, keep=2) == (checkpoint_id(1, 20),)
    assert leftovers(folder) == [of_this_attempt]
    assert beside_what_is_kept.parent.exists()
    assert not beside_another_part.parents[1].exists()
    assert not alone.parents[3].exists()
    directory = materialize(bench.run, kept, cache_dir=bench.scratch / "cache")
    assert read_directory(directory) == expected_directory(1, 10)


def test_a_file_whose_writer_was_taken_for_dead_is_stored_whole(tmp_path: Path) -> None:
    """By a cut-off agent of a lower attempt; its checkpoint is fenced."""
    store = open_store(f"file://{tmp_path}/store")
    store.probe()
    content = os.urandom(10 << 20)
    (tmp_path / "large").write_bytes(content)
    deleted: list[Path] = []

    def progress(_: int) -> None:
        if len(deleted) < 3:
            deleted.extend(leftovers(tmp_path))
            store.abort_uploads("run/", of=lambda _key: True)
            assert not leftovers(tmp_path)

    store.put_file("run/a/large", tmp_path / "large", crc32=zlib.crc32(content), progress=progress)
    assert len(deleted) == 3
    assert store.get("run/a/large") == content
    assert [item.key for item in store.list("")] == ["run/a/large"]


def test_an_unfinished_file_that_cannot_be_deleted_does_not_keep_old_checkpoints(
    bench: Bench, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (10, 20, 30):
        bench.commit(step=step)
    bench.resolve(1)
    bench.resolve(2)
    litter = folder / "checkpoints" / checkpoint_id(1, 30).name / ".trainrun-tmp-dead"
    litter.write_bytes(b"half a file")
    unlink = Path.unlink

    def deny(path: Path, missing_ok: bool = False) -> None:
        if path == litter:
            raise OSError(errno.EACCES, "Permission denied")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", deny)
    with pytest.raises(StoreDenied, match=r"cannot delete file://.*tmp-dead: Permission denied"):
        bench.run.store.abort_uploads("", of=lambda _key: True)
    assert retain(bench.run, attempt=2, keep=2) == (checkpoint_id(1, 10),)


def test_a_folder_that_vanishes_and_comes_back_loses_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.resolve(1)
    bench.commit(step=10)
    files = bench.save(0, {"a": b"x"})
    root = tmp_path / "store"
    root.rename(tmp_path / "away")
    with pytest.raises(StoreUnavailable):
        bench.run.store.put_file("digits/x", files[0].path, crc32=zlib.crc32(b"x"))
    assert bench.resolve(2, committed=checkpoint_id(1, 10)).outcome == "Unavailable"
    (tmp_path / "away").rename(root)
    answer = bench.resolve(2)
    assert answer.resume == checkpoint_id(1, 10)
    directory = materialize(bench.run, checkpoint_id(1, 10), cache_dir=tmp_path / "cache")
    assert read_directory(directory) == expected_directory(1, 10)
