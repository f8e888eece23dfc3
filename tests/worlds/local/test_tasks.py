"""Programs of tasks as runs: a task's death is the task's, other deaths are the run's."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.task_logs import records_of
from tests.worlds.local.local_runs import LocalRuns
from trainrun.tasks.records import Began, Dispatched, Done, Failed, Record

SHARDS = 30


@pytest.fixture(autouse=True)
def shards(runs: LocalRuns) -> None:
    runs.script = "shards.py"


def log_of(runs: LocalRuns) -> list[Record]:
    return records_of(runs.storage / "tiny")


def done(runs: LocalRuns) -> int:
    return sum(isinstance(it, Done) for it in log_of(runs))


def pid_of(runs: LocalRuns, target: str) -> int:
    """`rank 0`, `agent 1`."""
    kind, number = target.split()
    for pid in runs.our_processes():
        said = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        agent = b"trainrun.agent" in said.split(b"TRAINRUN_", 1)[0]
        place = f"\0RANK={number}\0" if kind == "rank" else f"/tiny-{number}-"
        if agent == (kind == "agent") and place.encode() in said and b"shards.py" in said:
            return pid
    raise AssertionError(f"no {target}")


def check_result(runs: LocalRuns) -> None:
    assert int((runs.journal / "result").read_text()) == sum(n * n for n in range(SHARDS))
    committed: set[str] = set()
    for record in log_of(runs):
        if isinstance(record, Dispatched | Done):
            assert record.key not in committed, "it runs again after its commit"
        if isinstance(record, Done):
            committed.add(record.key)


def test_tasks_that_die_are_no_incidents_of_the_run(runs: LocalRuns) -> None:
    ended = runs.run()
    assert ended.code == 0, ended.out[-3000:] + ended.err[-3000:]
    assert ended.incidents == []
    check_result(runs)
    died = [it for it in log_of(runs) if isinstance(it, Failed)]
    assert Counter(it.reason for it in died) == {"Exited": 4}
    assert all(it.counted for it in died)
    assert {it.worker for it in log_of(runs) if isinstance(it, Done)} == {0, 1}
    assert ended.status["progress"]["step"] == SHARDS + 1


@pytest.mark.case(
    "tasks", "A rank, an agent, a pod or a node with tasks is lost", counted="its cause"
)
@pytest.mark.case(
    "tasks", "The driver of tasks dies (rank 0, its node, the command)", counted="its cause"
)
def test_a_rank_the_driver_or_an_agent_that_dies_is_one_incident_and_tasks_go_on(
    runs: LocalRuns,
) -> None:
    runs.spec = {"failurePolicy": {"maxFailures": 3, "backoff": {"initial": "0s"}}}
    runs.env = {"PACE": "0.2"}
    driver = runs.start()
    for number, target in enumerate(("rank 1", "rank 0", "agent 1")):
        eventually(lambda at=5 + 6 * number: done(runs) > at, timeout=120, what=target)
        os.kill(pid_of(runs, target), signal.SIGKILL)
    ended = driver.end()
    assert ended.code == 0, ended.out[-3000:] + ended.err[-3000:]
    assert [it["counted"] for it in ended.incidents] == [True] * 3
    check_result(runs)
    # Tasks that ran there have paid a retry; those elsewhere have begun again for nothing.
    assert [it.lost for it in log_of(runs) if isinstance(it, Began)] == [(), (1,), (0,), (1,)]


def test_a_task_that_has_failed_for_good_ends_the_run_without_restarts(runs: LocalRuns) -> None:
    # Each of them would have read the same end from the log.
    runs.spec = {"failurePolicy": {"maxFailures": 3}}
    runs.env = {"RETRIES": "0"}
    ended = runs.run()
    assert ended.code == 1, ended.out[-3000:] + ended.err[-3000:]
    assert len(ended.incidents) == 1
    assert "square(6)" in ended.incidents[0]["message"]
    assert "failed on try 1 of 1: exited with code 0" in ended.incidents[0]["message"]


@pytest.mark.case("tasks", "A notice comes while tasks run", counted="its cause")
@pytest.mark.case("tasks", "A notice for rank 0 while tasks run", counted="its cause")
def test_tasks_that_run_when_a_notice_comes_are_awaited_and_cost_no_retry(runs: LocalRuns) -> None:
    runs.spec = {"failurePolicy": {"maxPreemptions": 1}}
    runs.env = {"PACE": "0.5", "SHARDS": "12"}
    ended = runs.run("--fault", "preempt rank=1 step=4 grace=30s")
    assert ended.code == 0, ended.out[-3000:] + ended.err[-3000:]
    assert [it["cause"] for it in ended.incidents] == ["Preempted"]
    records = log_of(runs)
    assert [it.lost for it in records if isinstance(it, Began)] == [(), ()]
    ends = sum(isinstance(it, Done | Failed) for it in records)
    assert sum(isinstance(it, Dispatched) for it in records) == ends  # none was left behind
    assert sum(isinstance(it, Failed) for it in records) == 1  # of the seventh shard
