"""A rank keeps log and results of its tasks by its agent: real agents, a folder, an S3 server."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.agent.workers import Workers, start
from tests.support.eventually import eventually
from tests.support.s3_server import S3Server
from trainrun.contract.agent_config import StorageConfig
from trainrun.contract.answer import Hold, ResolveRequest

if TYPE_CHECKING:
    from tests.support.operator_stand_in import OperatorStandIn

SCRIPT = """
import json, os, sys, threading, time
from pathlib import Path
from trainrun.errors import *
from trainrun.tasks.agent_storage import AgentTaskStorage, attempt_key
place = Path(os.environ["TRAINRUN_STAGING"]).parents[2] / "tasks"
place.mkdir(exist_ok=True)
def told(call, *arguments):
    try:
        return call(*arguments)
    except (TrainRunError, OSError) as error:
        return f"{type(error).__name__}: {error}"
def say(*words):
    print("SAID", json.dumps(words), flush=True)
"""

ROUND = (
    SCRIPT
    + """
keep = AgentTaskStorage()
say(keep.uri, len(attempt_key()), keep.read(0) == [])
say([keep.append(at, b'{"n":%d}' % at) for at in (1, 2, 3, 3)], keep.append(3, b"{}"))
say([it.decode() for it in keep.read(1)])
(place / "a").write_bytes(b"x" * 70000)
keep.upload(place / "a", "k-1/0")
keep.download("k-1/0", place / "b")
say((place / "b").stat().st_size, keep.sizes(["k-1/0", "k-2/0"]))
say(told(keep.download, "k-2/0", place / "c"), (place / "c").exists())
keep.set_aside("k-1/0")
say(keep.sizes(["k-1/0"]), told(keep.upload, Path("/etc/passwd"), "k-1/0"))
say(told(keep.upload, place / "a", "../log/000000001.json"))
say(sorted(it.name for it in Path(os.environ["TRAINRUN_STAGING"]).iterdir()))
"""
)


def said(output: str) -> list[list[object]]:
    return [json.loads(it.partition("SAID ")[2]) for it in output.splitlines() if "SAID" in it]


def test_a_rank_keeps_its_log_and_its_results_by_its_agent(
    operator: OperatorStandIn, workers: Workers
) -> None:
    worker = workers.start(ROUND)
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start(), key="ab" * 32)
    operator.until(lambda s: s.exits)

    folder, own = workers.storage / "run" / "tasks", workers.folder / "node-0"
    refused = f"AgentRefused: /etc/passwd is not in the folder of this worker, {own}"
    missing = f"ObjectNotFound: {folder.parent.as_uri()}/tasks/objects/k-2/0 does not exist"
    assert said(worker.output) == [
        [folder.as_uri(), 32, True],
        [[True, True, True, True], False],
        [['{"n":2}', '{"n":3}']],
        [70000, [70000, None]],
        [missing, False],
        [[None], refused],
        ["AgentRefused: not an object key: 'run/tasks/objects/../log/000000001.json'"],
        [[]],
    ]
    assert (folder / "damaged/k-1/0").stat().st_size == 70000


AWAY = (
    SCRIPT
    + """
keep = AgentTaskStorage()
keep.append(1, b"{}")
(place / "a").write_bytes(b"x")
keep.upload(place / "a", "k-1/0")
say("ready")
def answers():
    return {str(told(*call)).partition(":")[0] for call in (
        (keep.sizes, ["k-1/0"]), (keep.download, "k-1/0", place / "b"),
        (keep.upload, place / "a", "k-1/0"), (keep.append, 2, b"{}"), (keep.read, 0))}
for number in range(3):
    while not Path(f"go-{number}").exists(): time.sleep(.01)
    say(sorted(answers()))
"""
)


@pytest.mark.case("tasks", "The store is away when the task log is read or written")
@pytest.mark.servers
def test_a_rank_is_told_what_is_wrong_with_the_store(
    own_s3: S3Server,
    operator: OperatorStandIn,
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in own_s3.environment().items():
        monkeypatch.setenv(name, value)
    storage = StorageConfig(
        uri="s3://bucket/runs", run_name="run", endpoint_url=own_s3.endpoint, region="us-east-1"
    )
    worker = workers.start(AWAY, storage=storage)
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start(), key="ab" * 32)
    worker.shows('SAID ["ready"]')

    def told(number: int) -> list[object]:
        (workers.folder / f"go-{number}").touch()
        eventually(lambda: len(said(worker.output)) == number + 2, timeout=60)
        return said(worker.output)[-1]

    own_s3.stop()
    assert told(0) == [["StoreUnavailable"]]
    problem = operator.until(lambda s: s.problems).problems[0]
    assert (problem.type, problem.reason) == ("StorageUnavailable", "StoreUnavailable")
    assert "tasks of attempt 1 wait for the store: cannot" in problem.message
    secret, own_s3.secret_key = own_s3.secret_key, "another"
    own_s3.start()
    assert told(1) == [["StoreDenied"]]
    own_s3.stop()
    own_s3.secret_key = secret
    own_s3.start()
    shutil.rmtree(own_s3.data / "bucket" / "runs" / "run")
    # An upload alone does not look; the log would be given up after half a minute.
    assert told(2) == [["None", "StoreUnavailable"]]


QUEUE = (
    SCRIPT
    + """
keep = AgentTaskStorage()
keep.append(1, b"{}")
os.mkfifo(place / "slow")
for n in range(20):
    slow = (keep.upload, place / "slow", f"k-{n}/0")
    threading.Thread(target=told, args=slow).start()
say(*(keep.append(at, b"{}") for at in range(2, 12)), len(keep.read(0)))
os.kill(os.getpid(), 9)
"""
)


@pytest.mark.case("tasks", "A transfer of results is slow or hangs")
def test_slow_uploads_hold_up_neither_the_log_nor_the_agent(
    operator: OperatorStandIn, workers: Workers
) -> None:
    """Twenty wait for a file that never ends."""
    worker = workers.start(QUEUE)
    operator.order(Hold(attempt=1, offer=True, resolve=ResolveRequest(attempt=1)))
    operator.until(lambda s: s.resolution)
    operator.order(start(), key="ab" * 32)
    operator.until(lambda s: s.exits)
    assert said(worker.output) == [[True] * 10 + [11]]
    # Nor the next attempt's, whose folder is read and written while theirs is closed.
    operator.order(Hold(attempt=2, offer=True, resolve=ResolveRequest(attempt=2)))
    operator.until(lambda s: s.resolution and s.resolution.attempt == 2)
    (workers.folder / "node-0/tasks/slow").unlink()
    operator.order(start(2), key="cd" * 32)
    operator.until(lambda s: s.exits and s.attempt == 2)
    assert len(said(worker.output)) == 2


@pytest.mark.case("tasks", "The operator gives an attempt no key", counted="the program ends")
def test_a_rank_without_a_key_is_told_so(operator: OperatorStandIn, workers: Workers) -> None:
    worker = workers.start(SCRIPT + "say(told(attempt_key))")
    operator.order(start())
    operator.until(lambda s: s.exits)
    assert said(worker.output) == [
        [
            "AgentRefused: the operator sent no key for this attempt, so its ranks cannot "
            "authenticate each other"
        ]
    ]
