"""A checkpoint in a folder of the script's own, for scripts that look for their newest one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import trainrun
from tests.library.conftest import WORKER_IMAGE
from tests.support.mounts import mounted
from trainrun._common.tree import walk
from trainrun._process import restoring

if TYPE_CHECKING:
    from collections.abc import Iterator

URI = "s3://bucket/runs/digits/checkpoints/step-000000020-attempt-1"


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """What the agent hands out: three saves, of which the newest is not the last by name."""
    folder = tmp_path / "cache"
    for name, age in (("checkpoint-5", 3), ("checkpoint-20", 1), ("checkpoint-10", 2)):
        (folder / name / "empty").mkdir(parents=True)
        (folder / name / "model.pt").write_text(f"weights of {name}")
        for path in (folder / name / "empty", folder / name / "model.pt", folder / name):
            os.utime(path, (1e9 - age, 1e9 - age))
    (folder / "latest").symlink_to("checkpoint-20")
    (folder / "run.sh").write_text("resume")
    (folder / "run.sh").chmod(0o750)
    return folder


@pytest.fixture(autouse=True)
def a_process_of_its_own() -> Iterator[None]:
    """Each call below is one of another process, unless a test says otherwise."""
    yield
    restoring._restored_here.clear()


def restore(source: Path, target: Path, attempt: int, part: str = URI, run_id: str = "r1") -> None:
    restoring._restored_here.clear()
    restoring.restore(source, target, part=part, run_id=run_id, attempt=attempt)


def everything(folder: Path) -> str:
    """All that any file in a folder says, hidden ones included."""
    return " ".join(path.read_text() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.case("storage", "A killed process left half a checkpoint in the script's own folder")
def test_what_a_killed_process_left_half_written_is_not_taken_for_the_newest(
    stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    (out / "checkpoint-30").mkdir(parents=True)
    (out / "checkpoint-30" / "model.pt").write_text("wei")
    (out / "latest").symlink_to("checkpoint-30")
    restore(stored, out, 2)
    assert walk(out) == walk(stored)
    assert (out / "latest" / "model.pt").read_text() == "weights of checkpoint-20"
    aside = tmp_path / ".out.trainrun" / "before-attempt-2"
    assert (aside / "checkpoint-30" / "model.pt").read_text() == "wei"
    assert capsys.readouterr().err == (
        f"trainrun: {out} now holds the checkpoint; its old files are in {aside}\n"
    )


@pytest.mark.parametrize("time", ["st_mtime_ns", "st_ctime_ns"])
@pytest.mark.parametrize("pattern", ["checkpoint-*", "*/model.pt"])
def test_who_looks_for_the_newest_by_time_finds_that_of_the_highest_step(
    stored: Path, tmp_path: Path, time: str, pattern: str
) -> None:
    restore(stored, tmp_path / "out", 2)
    found = [p for p in (tmp_path / "out").glob(pattern) if "latest" not in p.parts]
    found.sort(key=lambda path: getattr(path.stat(), time))
    steps = [path.relative_to(tmp_path / "out").parts[0] for path in found]
    assert steps == ["checkpoint-5", "checkpoint-10", "checkpoint-20"]
    assert len({getattr(path.stat(), time) for path in found}) == 3


@pytest.mark.slow
def test_ranks_of_one_machine_restore_once_and_the_others_wait(
    stored: Path, tmp_path: Path
) -> None:
    """`FileExistsError: .../out/model.pt`, counted as a failure of the script each time."""
    for number in range(200):
        (stored / f"shard-{number}").write_text("x")
    said = """
import sys
from pathlib import Path
from trainrun._process.restoring import restore
source, out = map(Path, sys.argv[1:])
restore(source, out, part="all", run_id="r1", attempt=2)
assert len(list(out.glob("shard-*"))) == 200
(out / "log.txt").open("a").write("trains ")
"""
    command = [sys.executable, "-c", said, str(stored), str(tmp_path / "out")]
    ranks = [subprocess.Popen(command, cwd=WORKER_IMAGE) for _ in range(4)]
    assert [rank.wait() for rank in ranks] == [0] * 4
    assert (tmp_path / "out" / "log.txt").read_text() == "trains " * 4


def test_a_rank_that_comes_late_leaves_what_the_others_have_written_since(
    stored: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    restore(stored, out, 2)
    (out / "checkpoint-30").mkdir()
    restore(stored, out, 2)
    assert (out / "checkpoint-30").is_dir()
    restore(stored, out, 3)
    assert walk(out) == walk(stored)


def test_a_process_that_restores_once_more_gets_it_as_it_was(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    restore(stored, out, 2)
    (out / "run.sh").write_text("changed")
    restoring.restore(stored, out, part=URI, run_id="r1", attempt=2)
    assert walk(out) == walk(stored)


def test_ranks_may_restore_their_own_files_into_one_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for rank in range(2):
        (tmp_path / f"rank-{rank}" / "shards").mkdir(parents=True)
        (tmp_path / f"rank-{rank}" / "shards" / f"{rank}.pt").write_text(f"of {rank}")
    for attempt in (2, 3):
        (out / "shards").mkdir(parents=True, exist_ok=True)
        (out / "shards" / "2.pt").write_text("half")
        for rank in range(2):
            restore(tmp_path / f"rank-{rank}", out, attempt, part=f"{URI} rank {rank}")
        assert everything(out) == "of 0 of 1"


@pytest.mark.slow
@pytest.mark.parametrize("inside", [False, True])
def test_a_restoration_that_was_killed_is_begun_anew_and_loses_nothing(
    stored: Path, tmp_path: Path, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if inside:
        monkeypatch.setattr(os, "access", lambda *_: False)
    survived = kills = 0
    while not survived:
        kills += 1
        out = tmp_path / f"{kills}" / "out"
        (out / "checkpoint-30").mkdir(parents=True)
        (out / "checkpoint-30" / "model.pt").write_text("half")
        (out / "model.pt").write_text("mine")
        survived = _restore_and_die(stored, out, after=kills)
        restore(stored, out, 3)
        assert walk(out) == walk(stored), kills
        kept = everything(out.parent)
        assert "half" in kept, kills
        assert "mine" in kept, kills
    assert kills > 30


def _restore_and_die(source: Path, target: Path, *, after: int) -> bool:
    """In a process that is killed at the n-th thing that it does; whether it came to its end."""
    child = os.fork()
    if child == 0:
        left = after

        def die(event: str, _arguments: object) -> None:
            nonlocal left
            counts = event in ("open", "os.mkdir", "os.rename", "os.symlink", "os.utime")
            left -= counts
            if counts and not left:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(die)
            restore(source, target, 2)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status == 0


def test_what_was_there_before_the_run_stays_through_all_restarts(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoring, "ROOM", 5000)
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").write_text("x" * 9000)
    for attempt in range(2, 7):
        restore(stored, out, attempt)
        (out / "half.pt").write_text("x" * 3000)
    beside = tmp_path / ".out.trainrun"
    assert {path.name for path in beside.glob("before-*")} == {
        "before-attempt-2",
        "before-attempt-5",
        "before-attempt-6",
    }
    restore(stored, out, 2, run_id="another-run")
    restore(stored, out, 3, run_id="another-run")
    assert (beside / "before-attempt-2-2" / "half.pt").exists()
    assert (beside / "before-attempt-6").exists()
    assert (beside / "before-attempt-2" / "notes").exists()


def test_a_mounted_folder_keeps_what_is_moved_aside_in_itself(stored: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "out", "size=1m") as out:
        (out / "checkpoint-30").mkdir()
        (out / "lost+found").mkdir()
        with mounted(out / "logs", "size=1m") as logs:
            (logs / "events").write_text("growing")
            restore(stored, out, 2)
            assert (logs / "events").read_text() == "growing"
            assert (out / ".trainrun" / "before-attempt-2" / "checkpoint-30").is_dir()
        added = {"logs", "lost+found"}
        assert [it for it in walk(out) if it.name not in added] == walk(stored)


@pytest.mark.parametrize(
    ("folder", "what"),
    [
        ("/", "the working directory"),
        (".", "the working directory"),
        ("..", "the working directory"),
        ("~", "the home directory"),
        (tempfile.gettempdir(), "the folder for temporary files"),
        ("/opt/project", "the script"),
        (sys.prefix, "the Python that runs it"),
    ],
)
def test_a_folder_that_holds_more_than_checkpoints_is_refused_by_name(
    stored: Path,
    tmp_path: Path,
    folder: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path if folder.startswith(".") else "/usr")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/opt/project/t.py", raising=False)
    with pytest.raises(ValueError, match=f"this folder is or contains {what}, and everything"):
        trainrun.Checkpoint(stored).to_directory(Path(folder).expanduser())


def test_a_checkpoint_is_not_restored_onto_itself(stored: Path) -> None:
    """It deleted each file before it copied it."""
    before = walk(stored)
    with pytest.raises(ValueError, match="is or contains the checkpoint itself"):
        trainrun.Checkpoint(stored).to_directory(stored)
    with pytest.raises(ValueError, match="is inside the checkpoint"):
        trainrun.Checkpoint(stored).to_directory(stored / "copy")
    assert walk(stored) == before


def test_without_a_run_an_equal_folder_stays_as_it_is(stored: Path, tmp_path: Path) -> None:
    out = Path(trainrun.Checkpoint(stored).to_directory(tmp_path / "out"))
    assert walk(out) == walk(stored)
    inode = (out / "run.sh").stat().st_ino
    trainrun.Checkpoint(stored).to_directory(out)
    assert (out / "run.sh").stat().st_ino == inode
    (out / "run.sh").write_text("mine")
    trainrun.Checkpoint(stored).to_directory(out)
    assert walk(out) == walk(stored)
    assert "mine" in everything(tmp_path / ".out.trainrun")


def test_a_full_disk_leaves_the_folder_as_it_was(stored: Path, tmp_path: Path) -> None:
    (stored / "large.pt").write_bytes(b"x" * 200_000)
    with mounted(tmp_path / "disk", "size=128k") as disk:
        (disk / "out").mkdir()
        (disk / "out" / "model.pt").write_text("mine")
        with pytest.raises(OSError, match="No space left on device"):
            restore(stored, disk / "out", 2)
        assert everything(disk).split() == ["mine"]


def test_a_record_that_nobody_can_read_is_no_record(stored: Path, tmp_path: Path) -> None:
    restore(stored, tmp_path / "out", 2)
    (tmp_path / ".out.trainrun" / "restored.json").write_text("{")
    (tmp_path / "out" / "half.pt").write_text("x")
    restore(stored, tmp_path / "out", 2)
    assert walk(tmp_path / "out") == walk(stored)


def test_a_read_only_folder_can_be_restored_again_and_again(stored: Path, tmp_path: Path) -> None:
    (stored / "checkpoint-5").chmod(0o555)
    for attempt in (2, 3, 4):
        restore(stored, tmp_path / "out", attempt)
        assert walk(tmp_path / "out") == walk(stored)
    shutil.rmtree(tmp_path / "out")
