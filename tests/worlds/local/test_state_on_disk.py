"""Status file, driver lock, places, leftovers."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from trainrun.contract.variables import NODE_FOLDER
from trainrun_operator.worlds.base import StatusConflict, StatusUnwritable
from trainrun_operator.worlds.local.driver_lock import AlreadyLed, acquire, leader_of
from trainrun_operator.worlds.local.place import StatusFile, StatusUnreadable, place_of
from trainrun_operator.worlds.local.worker import kill_all

LOCK_AND_WAIT = """
import sys, time
from pathlib import Path
from trainrun_operator.worlds.local.driver_lock import acquire
lock = acquire(Path(sys.argv[1]), run="tiny")
print("locked", flush=True)
time.sleep(600)
"""


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "deep" / "er" / "status.json")
    assert file.read() is None
    created = file.create({"kind": "TrainRun"})
    status = replace(created.status, attempt=3, phase="Running")
    written = file.replace(replace(created, status=status))
    assert file.read() == written
    assert (written.uid, written.resource_version) == (created.uid, 2)


def test_a_write_over_a_version_that_was_not_read_is_refused(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "status.json")
    first = file.create({})
    file.replace(first)
    with pytest.raises(StatusConflict) as raised:
        file.replace(first)
    assert str(raised.value).endswith("expected version 1, found version 2")


def test_a_file_that_was_removed_is_written_anew(tmp_path: Path) -> None:
    file = StatusFile(tmp_path / "status.json")
    first = file.create({})
    file.path.unlink()
    assert file.read() is None
    assert file.replace(first).resource_version == 2
    assert file.read() is not None


def test_a_full_disk_is_named_with_what_to_do_and_the_status_stays_as_it_was(
    tmp_path: Path,
) -> None:
    file = StatusFile(tmp_path / "status.json")
    first = file.create({})
    file.path.with_suffix(".new").symlink_to("/dev/full")
    with pytest.raises(StatusUnwritable) as raised:
        file.replace(first)
    assert str(raised.value) == (
        f"cannot write {file.path}: No space left on device; the run waits until it can: "
        f"make room in {tmp_path}"
    )
    assert file.read() == first


def test_a_write_that_had_arrived_although_it_failed_is_no_other_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StatusFile(tmp_path / "status.json")
    first = file.create({})
    synced = os.fsync

    def fails_for_folders(number: int) -> None:
        if stat.S_ISDIR(os.fstat(number).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        synced(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails_for_folders)
        with pytest.raises(StatusUnwritable):
            file.replace(first)
    assert file.replace(first).resource_version == 3


def test_a_storage_that_vanished_does_not_come_back_empty(tmp_path: Path) -> None:
    storage = tmp_path / "disk"
    storage.mkdir()
    file = StatusFile(storage / ".trainrun" / "run" / "status.json")
    first = file.create({})
    storage.rename(tmp_path / "elsewhere")
    with pytest.raises(StatusUnwritable, match="is its disk still mounted"):
        file.replace(first)
    assert not storage.exists()
    (tmp_path / "elsewhere").rename(storage)
    assert file.replace(first).resource_version == 2


def test_a_status_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.write_text('{"format": 7}')
    with pytest.raises(StatusUnreadable) as raised:
        StatusFile(path).read()
    assert "format 7 is not 1" in str(raised.value)
    assert "move it away, and the run continues" in str(raised.value)


def test_the_place_of_a_run_is_beside_its_file_storage(tmp_path: Path) -> None:
    place = place_of(tmp_path.as_uri(), "tiny", environ={})
    assert place.folder == tmp_path / ".trainrun" / "tiny"


def test_the_place_of_a_run_in_a_bucket_is_in_the_users_state_folder() -> None:
    place = place_of("s3://bucket/p/", "tiny", environ={"XDG_STATE_HOME": "/state"})
    same = place_of("s3://bucket/p", "tiny", environ={"XDG_STATE_HOME": "/state"})
    assert place == same
    assert place.folder.parent.parent == Path("/state/trainrun")


def test_a_second_leader_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    lock = acquire(tmp_path / "lock", run="tiny")
    # flock belongs to the open file: a second one of the same process is refused like any other.
    with pytest.raises(AlreadyLed) as raised:
        acquire(tmp_path / "lock", run="tiny")
    assert f"run tiny is being led by process {os.getpid()} on " in str(raised.value)
    assert f"`kill {os.getpid()}`" in str(raised.value)
    lock.release()
    acquire(tmp_path / "lock", run="tiny").release()
    assert leader_of(tmp_path / "lock") is None


@pytest.mark.slow
def test_a_dead_leader_is_followed_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LOCK_AND_WAIT, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        leader = leader_of(tmp_path / "lock")
        assert leader is not None
        assert leader.pid == holder.pid
        with pytest.raises(AlreadyLed):
            acquire(tmp_path / "lock", run="tiny")
        holder.kill()
        holder.wait()
    assert leader_of(tmp_path / "lock") is None
    lock = acquire(tmp_path / "lock", run="tiny")
    assert lock.before is not None
    assert lock.before.pid == leader.pid
    lock.release()


def test_everything_that_carries_the_folder_in_its_environment_is_ended(tmp_path: Path) -> None:
    node = tmp_path / "nodes" / "tiny-0-1"
    other = tmp_path / "nodes" / "tiny-0-11"
    # A grandchild in a session of its own, whose parent has gone.
    script = "setsid sleep 600 & exec sleep 600"
    inside = subprocess.Popen(["sh", "-c", script], env={**os.environ, NODE_FOLDER: str(node)})
    beside = subprocess.Popen(["sleep", "600"], env={**os.environ, NODE_FOLDER: str(other)})
    eventually(lambda: _sleepers(node) == 2, what="both sleepers")
    assert kill_all(node) == 2
    assert inside.wait() == -signal.SIGKILL
    assert beside.poll() is None
    assert kill_all(tmp_path / "nodes") == 1
    beside.wait()


def _sleepers(node: Path) -> int:
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            is_sleep = entry.name.isdigit() and (entry / "comm").read_text() == "sleep\n"
            if is_sleep and f"{NODE_FOLDER}={node}\0".encode() in (entry / "environ").read_bytes():
                count += 1
        except OSError:
            continue
    return count
