"""An agent's whole round against a real S3 server, and that server's outage."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.agent.checkpoints.test_started_in_place import POINT, crash, go_on
from tests.agent.checkpoints.test_upload_every import KEEPS
from tests.agent.workers import Workers, start
from tests.support.eventually import eventually
from tests.support.s3_server import S3Server
from trainrun.contract.agent_config import StorageConfig
from trainrun.contract.answer import Answer, Exit, Hold, ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId

if TYPE_CHECKING:
    from tests.support.operator_stand_in import OperatorStandIn

SCRIPT = """
import time, trainrun
from pathlib import Path
def save(step):
    directory = trainrun.staging_directory()
    (directory / "model.bin").write_bytes(b"abc" * step)
    trainrun.report({"step": step}, step=step, checkpoint=directory)
checkpoint = trainrun.get_checkpoint()
if checkpoint is None:
    save(1)
    while not Path("go").exists(): time.sleep(.01)
    save(2)
else:
    with checkpoint.as_directory() as d: print("read", (Path(d) / "model.bin").read_bytes())
"""


@pytest.fixture
def s3(own_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    return own_s3


def test_workers_with_nothing_to_read_leave_the_store_alone_while_the_gang_starts(
    operator: OperatorStandIn, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty of them that load what talks to the store took all the CPU of few nodes."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    with socket.create_server(("127.0.0.1", 0)) as store:
        endpoint = f"http://127.0.0.1:{store.getsockname()[1]}"
        storage = StorageConfig(
            uri="s3://bucket/runs", run_name="run", endpoint_url=endpoint, region="us-east-1"
        )
        workers.start("pass", slot=1, worker="run-1-1", storage=storage)
        first = Answer(order=Hold(attempt=1), poll=2.0)
        operator.order(first.order, worker="run-1-1")
        operator.until(lambda s: s.seen == first.digest, worker="run-1-1")
        store.settimeout(0)
        with pytest.raises(BlockingIOError):
            store.accept()
        # One that takes another's place gets ready to read at once.
        workers.start("pass", slot=1, worker="run-1-2", storage=storage, created_for=2)
        store.settimeout(30)
        store.accept()[0].close()


def test_checkpoints_wait_for_a_server_that_is_away_and_are_read_back(
    s3: S3Server, operator: OperatorStandIn, workers: Workers
) -> None:
    storage = StorageConfig(
        uri="s3://bucket/runs", run_name="run", endpoint_url=s3.endpoint, region="us-east-1"
    )
    worker = workers.start(SCRIPT, storage=storage)
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    found = operator.until(lambda s: s.resolution).resolution
    assert found is not None
    assert found.outcome == "Resolved", found.message
    operator.order(start())
    operator.until(lambda s: s.committed and s.committed.id.step == 1)
    s3.stop()
    (workers.folder / "go").touch()
    away = operator.until(lambda s: s.problems, timeout=60)
    assert away.problems[0].type == "StorageUnavailable"
    s3.start()
    last = operator.until(lambda s: s.committed and s.committed.id.step == 2, timeout=60)
    assert last.problems == ()
    operator.order(start(2, resume=CheckpointId(attempt=1, step=2)))
    worker.shows("read b'abcabc'")
    operator.order(Exit(succeeded=True))
    assert worker.code() == 0


SAVE_TWO_FILES = """
import time, trainrun
resume = trainrun.get_checkpoint()
for step in (1, 2) if resume is None else ():
    directory = trainrun.staging_directory()
    for name in "ab":
        (directory / name).write_text(name * step)
    trainrun.report(step=step, checkpoint=directory)
if resume is not None:
    print("resumed", flush=True)
time.sleep(600)
"""


def test_files_that_were_stored_before_a_restart_from_the_disk_are_not_sent_again(
    s3: S3Server, operator: OperatorStandIn, workers: Workers
) -> None:
    storage = StorageConfig(
        uri="s3://bucket/runs", run_name="run", endpoint_url=s3.endpoint, region="us-east-1"
    )
    worker = workers.start(SAVE_TWO_FILES, storage=storage, settings=KEEPS)
    part = f"bucket/runs/run/checkpoints/{POINT.name}/worker-00000"

    def puts(name: str) -> int:
        return s3.requests().count(("PutObject", f"/{part}/{name}"))

    # The server refuses an object in whose place there is a folder.
    in_the_way = s3.data / part / "b"
    in_the_way.mkdir(parents=True)
    operator.order(start(), settings=KEEPS)
    operator.until(lambda s: len(s.staged) == 2)
    operator.also(settings=KEEPS, upload=(POINT.step,))
    eventually(lambda: puts("a") and puts("b"), what="an upload of both files")
    crash(operator, worker.config.worker)
    go_on(operator)
    worker.shows("resumed")
    tries = puts("b")
    eventually(lambda: puts("b") > tries, what="an upload after the restart")
    # Something newer goes first, and then this upload again.
    order = Hold(attempt=3, flush=(3,), flush_seconds=60.0, flush_allowed=60.0)
    operator.order(order, settings=KEEPS)
    operator.until(lambda s: s.phase == "Idle" and s.held.attempt == 3)
    operator.order(replace(start(3, resume=POINT), staged=True), settings=KEEPS)
    in_the_way.rmdir()
    state = operator.until(lambda s: s.committed)
    assert (state.committed.id, puts("a")) == (POINT, 1)
