"""The private folder of a worker."""

from __future__ import annotations

import errno
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.nobody import as_nobody
from trainrun._process.staging import Staging
from trainrun.agent.processes.environment import Folders, remove_folder


def test_files_of_lower_attempts_are_forgotten(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path))
    for attempt in (1, 2, 10):
        folders.make(attempt, 0)
    folders.forget_below(10)
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["attempt-10"]


def test_caches_of_compilers_outlive_attempts_and_agents(tmp_path: Path) -> None:
    folders = Folders(str(tmp_path / "worker"))
    folders.prepare()
    made = tmp_path / "worker" / "compiled" / "cuda" / "kernel"
    made.touch()
    folders.forget_below(10)
    Folders(str(tmp_path / "worker")).prepare()
    assert made.exists()


def test_a_worker_that_cannot_speed_up_its_rendezvous_starts_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "rendezvous").touch()  # where a folder should be
    Folders(str(tmp_path)).prepare()
    assert "ranks may find rank 0 half a second later: " in caplog.text


def _stage_and_remove(folder: Path) -> list[str]:
    """What is left once checkpoints with a copy of a read-only folder were stored and removed."""
    tokenizer = folder / "tokenizer"
    (tokenizer / "sub").mkdir(parents=True)
    (tokenizer / "sub" / "tokenizer.json").write_bytes(b"{}")
    for read_only in (tokenizer / "sub", tokenizer):
        read_only.chmod(0o555)
    rank = Folders(str(folder / "worker")).make(1, 0)
    staging = Staging(rank.staging)
    for step in range(3):
        directory = staging.new_directory()
        shutil.copytree(tokenizer, directory / "tokenizer")
        staging.check(directory, step)
        name = staging.take(directory, step).name
        if step < 2:
            remove_folder(rank.staging / name)
    unreported = staging.new_directory()
    shutil.copytree(tokenizer, unreported / "tokenizer")
    staging.forget(unreported, 3)
    left = [path.name for path in rank.staging.iterdir() if any(path.iterdir())]
    Folders(str(folder / "worker")).forget_below(2)
    return [*left, *(path.name for path in (folder / "worker" / "staging").iterdir())]


@pytest.mark.slow
@pytest.mark.case("storage", "A checkpoint directory contains read-only folders")
def test_copies_of_read_only_folders_go_with_their_checkpoints(tmp_path: Path) -> None:
    """One copy for each checkpoint stayed, without a word, until the disk was full."""
    folder = tmp_path / "pod"
    folder.mkdir()
    assert as_nobody(_stage_and_remove, folder) == ["step-000000000002"]


@pytest.mark.slow
def test_making_folders_writable_follows_no_link(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o555)
    folder = tmp_path / "pod"
    folder.mkdir()
    as_nobody(_link_and_remove, folder, kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o555


def _link_and_remove(folder: Path, kept: Path) -> None:
    staged = folder / "staged"
    (staged / "read-only").mkdir(parents=True)
    (staged / "read-only" / "link").symlink_to(kept)
    (staged / "read-only").chmod(0o555)
    remove_folder(staged)
    assert not staged.exists()


def test_what_cannot_be_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "staged").mkdir()

    def rmtree(path: Path, *, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.EBUSY, "Device or resource busy", str(path))

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    remove_folder(tmp_path / "staged")
    assert caplog.messages == [
        f"{tmp_path}/staged still takes disk space, since it cannot be removed: [Errno 16] Device "
        f"or resource busy: '{tmp_path}/staged'"
    ]
