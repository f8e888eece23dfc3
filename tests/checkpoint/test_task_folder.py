"""The log and the results of a program of tasks, in a folder and on a real S3 server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.s3_server import S3Server
from trainrun.checkpoint.records import AttemptRecord
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.file import FileStore
from trainrun.checkpoint.stores.store import ObjectStore
from trainrun.checkpoint.task_folder import TaskFolder
from trainrun.errors import (
    ObjectNotFound,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
    TaskLogDamaged,
    TaskLogMissing,
)
from trainrun.tasks import LogTaken
from trainrun.tasks.local_storage import LocalTaskStorage
from trainrun.tasks.task_storage import TaskStorage

BATCHES = [b'{"session":"a","records":[1.0]}', b'{"session": "a"}', '{"text":"\u00e9"}'.encode()]
DAYS = 1e6


def a_folder(store: ObjectStore, *, patience: float = 0.0) -> TaskFolder:
    return TaskFolder(RunStore(store, "shards"), patience=patience)


def written(store: ObjectStore, *, patience: float = 0.0) -> TaskFolder:
    """A folder with a log and one result."""
    folder = a_folder(store, patience=patience)
    assert folder.read(0) == []
    for position, batch in enumerate(BATCHES, start=1):
        assert folder.append(position, batch)
    return folder


def result(tmp_path: Path, data: bytes = b"ten bytes!") -> Path:
    path = tmp_path / "result"
    path.write_bytes(data)
    return path


def test_batches_are_read_as_they_were_written(store: ObjectStore) -> None:
    keep: TaskStorage = written(store)

    assert keep.read(0) == BATCHES
    assert keep.read(2) == BATCHES[2:]
    assert keep.read(3) == []
    assert a_folder(store).read(1) == BATCHES[1:]
    assert keep.uri == f"{store.uri}/shards/tasks"


def test_a_position_belongs_to_whoever_writes_it_first(store: ObjectStore) -> None:
    ours, theirs = written(store), a_folder(store)
    assert theirs.read(0) == BATCHES

    assert theirs.append(4, b'{"session":"b"}')
    assert not ours.append(4, b'{"session":"a"}')
    assert ours.read(3) == [b'{"session":"b"}']
    assert theirs.append(4, b'{"session":"b"}'), "the same again, after an answer that was lost"
    assert ours.append(5, b'{"session":"a"}')
    assert not theirs.append(3, b'{"session":"b"}')


def test_results_come_back_as_they_were_stored(store: ObjectStore, tmp_path: Path) -> None:
    keep, path = written(store), tmp_path / "fetched"
    keep.upload(result(tmp_path, b""), "k-1/1")
    keep.upload(result(tmp_path), "k-1/0")

    keep.download("k-1/0", path)
    keep.download("k-1/1", tmp_path / "empty")

    assert (path.read_bytes(), (tmp_path / "empty").read_bytes()) == (b"ten bytes!", b"")
    assert keep.sizes(["k-1/0", "k-1/1", "k-2/0"]) == [10, 0, None]
    assert keep.names() == ["k-1/0", "k-1/1"]
    keep.upload(result(tmp_path, b"others"), "k-1/0")
    keep.set_aside("k-1/0")
    keep.set_aside("k-1/0")
    assert store.get("shards/tasks/damaged/k-1/0") == b"others"
    left = isinstance(store, FileStore) and store.root / "shards/tasks/objects/k-1/.trainrun-tmp-x"
    if left:
        left.write_bytes(b"a writer was killed")
    keep.delete(["k-1/1", "k-9/0"])
    assert keep.names() == []
    assert not (left and left.exists())
    with pytest.raises(ObjectNotFound, match="tasks/objects/k-1/0 does not exist"):
        keep.download("k-1/0", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_name_that_leaves_the_folder_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not an object key"):
        written(store).upload(result(tmp_path), "../log/000000001.json")


@pytest.mark.case(
    "tasks", "A batch of the task log is missing or damaged", counted="the program ends"
)
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", r"not a TrainRun record, or cut off \(0 bytes\)"),
        (b'{"crc32":1,"line":{}}\n', "its checksum does not match: its content changed"),
        (None, "it is missing, but record 3 exists"),
    ],
)
def test_a_batch_that_is_damaged_or_missing_is_named(
    store: ObjectStore, data: bytes | None, why: str
) -> None:
    written(store)
    key = "shards/tasks/log/000000002.json"
    if data is None:
        store.delete([key])
    else:
        store.put(key, data)

    folder = a_folder(store)
    for _ in range(2):
        with pytest.raises(TaskLogDamaged, match=rf"{key}: {why}\. The log is the only record"):
            folder.read(0)


def test_results_without_a_log_are_not_taken_for_those_of_a_new_one(
    store: ObjectStore, tmp_path: Path
) -> None:
    written(store).upload(result(tmp_path), "k-1/0")
    store.delete([it.key for it in store.list("shards/tasks/log/")])

    with pytest.raises(TaskLogDamaged, match="it is missing, but tasks/objects/ exists") as told:
        a_folder(store).read(0)
    assert str(told.value).endswith(
        f"or delete {store.uri}/shards/tasks to compute everything again"
    )


def emptied(store: ObjectStore) -> None:
    store.delete([it.key for it in store.list("")])


def test_a_bucket_that_was_emptied_makes_nothing_lost(store: ObjectStore, tmp_path: Path) -> None:
    """Everything would have been computed again, into what may be the wrong bucket."""
    folder = written(store)
    folder.upload(result(tmp_path), "k-1/0")
    emptied(store)

    gone = r"tasks/log/000000001\.json: it existed and has disappeared\. Check that the address and"
    with pytest.raises(TaskLogMissing, match=gone):
        folder.sizes(["k-1/0"])
    with pytest.raises(TaskLogMissing, match=gone):
        folder.download("k-1/0", tmp_path / "fetched")
    with pytest.raises(TaskLogMissing, match=gone):
        folder.append(4, b"{}")
    for after in (0, 3):
        with pytest.raises(TaskLogMissing, match=gone):
            folder.read(after)
    assert store.list("") == []


@pytest.mark.case(
    "tasks", "The bucket of tasks was emptied, or the endpoint changed", counted="the program ends"
)
def test_a_store_that_shows_nothing_of_what_was_done_is_not_believed(store: ObjectStore) -> None:
    """A wrong endpoint, after the command was started again."""
    folder = a_folder(store)
    folder.folder.write_once("attempts/000003.json", AttemptRecord(attempt=3, uid="u"))
    folder.begun = 2

    with pytest.raises(TaskLogMissing, match="it existed and has disappeared"):
        folder.read(0)
    folder.folder.write_once("attempts/000002.json", AttemptRecord(attempt=2, uid="u"))
    assert folder.read(0) == [], "the attempt before has died before its first record"
    assert folder.append(1, b"{}")
    folder.folder.delete(["attempts/000002.json"])
    assert folder.read(0) == [b"{}"]


def test_a_log_that_is_not_found_may_be_there_after_all(store: ObjectStore) -> None:
    """Some servers answer 404 for seconds."""
    folder = written(store, patience=DAYS)
    first = store.get("shards/tasks/log/000000001.json")
    store.delete(["shards/tasks/log/000000001.json"])

    with pytest.raises(StoreUnavailable, match="TrainRun keeps looking for 1000000 s"):
        folder.sizes(["k-1/0"])
    with pytest.raises(StoreUnavailable, match="it existed and has disappeared"):
        folder.append(4, b"{}")
    store.put("shards/tasks/log/000000001.json", first)
    assert folder.append(4, b"{}")
    assert folder.sizes(["k-1/0"]) == [None]


@pytest.mark.case("tasks", "The store is away when the task log is read or written")
@pytest.mark.servers
def test_a_server_that_is_away_or_refuses_makes_nothing_lost(
    own_s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    folder = written(open_store("s3://bucket/team"))
    folder.upload(result(tmp_path), "k-1/0")

    def answers(kind: type[StoreError]) -> None:
        for ask in (
            lambda: folder.sizes(["k-1/0"]),
            lambda: folder.download("k-1/0", tmp_path / "fetched"),
            lambda: folder.upload(tmp_path / "result", "k-2/0"),
            lambda: folder.append(4, b"{}"),
            lambda: folder.read(0),
        ):
            with pytest.raises(kind):
                ask()

    own_s3.stop()
    answers(StoreUnavailable)
    own_s3.start()
    assert folder.sizes(["k-1/0"]) == [10]
    (own_s3.data / "bucket").rename(own_s3.data / "other")
    answers(StoreMisconfigured)
    (own_s3.data / "other").rename(own_s3.data / "bucket")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    folder.folder.store.close()
    answers(StoreDenied)


def test_a_long_log_is_read_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 batches of 20 tasks."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    root = FileStore(tmp_path, uri=tmp_path.as_uri())
    folder, batch = a_folder(root), b'{"records":"%s"}' % (b"x" * 16000)
    for position in range(1, 501):
        assert folder.append(position, batch)

    begun = time.monotonic()
    assert len(a_folder(root).read(0)) == 500
    assert time.monotonic() - begun < 1.0


HOLDER = """
import sys
from pathlib import Path
from trainrun.tasks.local_storage import LocalTaskStorage
keep = LocalTaskStorage(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.case(
    "tasks", "Two programs use the same task folder on one machine", counted="the program ends"
)
def test_one_program_at_a_time_has_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "prepare"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LogTaken) as taken:
            LocalTaskStorage(folder)
        holder.kill()
    assert str(taken.value) == (
        f"process {holder.pid} runs the tasks of {folder}. Wait for it, or stop it with "
        f"`kill {holder.pid}`"
    )
    keep = LocalTaskStorage(folder)
    assert keep.append(1, b"{}")
    assert (folder / "tasks/log/000000001.json").is_file()
    keep.close()
    LocalTaskStorage(folder).close()
