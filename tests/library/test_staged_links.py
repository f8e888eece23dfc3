"""Links in a staging directory: replaced by copies, also on a disk that was full."""

from __future__ import annotations

import errno
import fcntl
import shutil
from pathlib import Path
from typing import IO

import pytest

import trainrun
from tests.support.agent_stand_in import AgentStandIn
from tests.support.mounts import mounted
from trainrun._process.staging import Staging


def test_links_that_a_full_disk_could_not_copy_are_copied_once_there_is_room(
    agent: AgentStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`[Errno 17] File exists: '.../.copy-of-best.pt'`, each time."""
    (tmp_path / "best.pt").write_text("x" * 150_000)
    with mounted(tmp_path / "disk", "size=256k") as disk:
        monkeypatch.setenv("TRAINRUN_STAGING", str(disk))
        directory = trainrun.staging_directory()
        (directory / "best.pt").symlink_to(tmp_path / "best.pt")
        (disk / "fill").write_bytes(b"x" * 200_000)
        with pytest.raises(trainrun.StagingFailed, match="No space left on device"):
            trainrun.report(step=3, checkpoint=directory)
        assert [path.name for path in directory.iterdir()] == ["best.pt"]
        (disk / "fill").unlink()
        trainrun.report(step=3, checkpoint=directory)
        staged = disk / "step-000000000003"
        assert [(it.name, it.stat().st_size) for it in staged.iterdir()] == [("best.pt", 150_000)]


def test_a_copy_of_a_link_that_fails_leaves_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "best.pt").write_text("weights")
    staging = Staging(tmp_path)
    directory = staging.new_directory()
    (directory / "best.pt").symlink_to(tmp_path / "best.pt")

    def full(_source: object, target: IO[bytes], _size: int) -> None:
        target.write(b"we")
        raise OSError(errno.ENOSPC, "No space left on device")

    def shares_nothing(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    with monkeypatch.context() as failing:
        failing.setattr(shutil, "copyfileobj", full)
        failing.setattr(fcntl, "ioctl", shares_nothing)
        with pytest.raises(trainrun.StagingFailed, match="No space left on device"):
            staging.take(directory, 3)
    assert [path.name for path in directory.iterdir()] == ["best.pt"]
    assert (directory / "best.pt").is_symlink()
    assert (tmp_path / staging.take(directory, 3).name / "best.pt").read_text() == "weights"


def test_a_link_may_have_the_longest_name_that_a_file_can_have(
    agent: AgentStandIn, tmp_path: Path
) -> None:
    """Cut to 255 characters, the name of its copy had more bytes than a name may have."""
    name = "é" * 126 + ".pt"
    (tmp_path / "base.pt").write_text("weights")
    directory = trainrun.staging_directory()
    (directory / name).symlink_to(tmp_path / "base.pt")
    trainrun.report(step=3, checkpoint=directory)
    assert (agent.staging / "step-000000000003" / name).read_text() == "weights"
