"""kill -9 of `trainrun run`: its agents end, the same command goes on, nothing is counted."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.stopping import stop, stop_unlocked
from tests.worlds.local.local_runs import LocalRuns

ROUNDS = 8


def test_agents_end_within_ten_seconds_of_their_driver(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "100000"}
    driver = runs.start()
    driver.wait_for_step(7)
    assert len(runs.our_processes()) == 4
    driver.kill()
    eventually(lambda: not runs.our_processes(), timeout=10, what="agents and processes end")


def test_the_same_command_takes_over_at_once_and_counts_nothing(runs: LocalRuns) -> None:
    runs.env = {**runs.commit_before(8, of=5), "STEPS": "60", "PAUSE": "0.05"}
    driver = runs.start()
    driver.wait_for_step(8)
    driver.kill()
    ended = runs.run()
    assert ended.code == 0, ended.out[-3000:]
    assert "continuing after attempt 1" in ended.err
    assert {incident["cause"] for incident in ended.incidents} == {"Interrupted"}
    assert not any(incident["counted"] for incident in ended.incidents)
    assert ended.status["failures"]["counted"] == 0
    assert runs.begins()[1] >= 5


def test_a_run_whose_driver_was_killed_says_which_steps_are_done_again(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "60", "PAUSE": "0.05"}
    driver = runs.start()
    driver.wait_for_step(8)
    driver.kill()
    (incident,) = runs.run().incidents
    said = re.fullmatch(
        r"the process that ran `trainrun run` ended; (?:steps after (\d+), the newest known "
        r"commit, are repeated|all steps are repeated, since no commit is known)"
        r"(?: \(last reported step: \d+\))?",
        incident["message"],
    )
    assert said is not None, incident["message"]
    resumed = incident["resumedFrom"]["step"] if "resumedFrom" in incident else 0
    assert int(said[1] or 0) <= resumed
    assert incident.get("lostSteps") != 0  # absent or a lower bound: nobody heard what came last


def test_counters_survive_the_driver(runs: LocalRuns) -> None:
    runs.spec = {"failurePolicy": {"maxFailures": 1}}
    runs.env = {"STEPS": "100", "PAUSE": "0.05"}
    driver = runs.start("--fault", "kill rank=0 step=6")
    eventually(lambda: len(runs.begins()) == 2, timeout=60)
    driver.wait_for_step(10)
    driver.kill()
    ended = runs.run()
    assert ended.code == 0, ended.out[-3000:]
    assert ended.status["failures"]["text"] == "1/1"
    causes = [(incident["cause"], incident["counted"]) for incident in ended.incidents]
    assert causes == [("AppError", True), ("Interrupted", False)]


@pytest.mark.case("operator", "`trainrun run` is killed (kill -9)")
def test_a_driver_killed_at_any_moment_loses_no_commit_and_costs_no_budget(
    runs: LocalRuns,
) -> None:
    dice = random.Random(20)
    runs.env = {"STEPS": "100000", "PAUSE": "0.01"}
    for _ in range(ROUNDS):
        driver = runs.start()
        time.sleep(dice.uniform(0.1, 2.0))  # the moment is what is tried here
        assert driver.process.poll() is None, driver.out.with_suffix(".err").read_text()
        driver.kill()
    driver = runs.start()  # on a slow machine none of these moments may have come after a commit
    manifests = runs.storage / "tiny" / "checkpoints"
    eventually(lambda: list(manifests.glob("*/manifest.json")), timeout=60, what="a commit")
    driver.kill()
    reached = max((step for _, step, _ in runs.steps(0)), default=0)
    runs.env["STEPS"] = str(reached + 20)
    ended = runs.run()
    assert ended.code == 0, ended.out[-3000:]
    assert ended.status["failures"]["counted"] == 0
    assert all(incident["cause"] == "Interrupted" for incident in ended.incidents)
    begins = runs.begins()
    assert begins == sorted(begins)
    assert begins[-1] > 0


def second_worker(runs: LocalRuns) -> tuple[int, int]:
    """Process ids of its agent and of its rank."""
    found = {}
    for pid in runs.our_processes():
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if b"RANK=1" in environ:
            found["rank"] = pid
        elif any(b'"slot":1,' in entry for entry in environ):
            found["agent"] = pid
    return found["agent"], found["rank"]


def gate(runs: LocalRuns, rank: int) -> Path:
    """Where a rank of attempt 1 is told at which call of `should_save()` it has to wait."""
    (path,) = runs.state.glob(f"nodes/tiny-{rank}-*/ranks/attempt-1/rank-{rank}")
    return path


def wait_until_asked(runs: LocalRuns, *, rank: int) -> None:
    path = gate(runs, rank)
    asked = f"rank {rank} is asked to save"
    eventually(lambda: any(path.read_bytes()[:8]), timeout=60, what=asked)


def stop_between_calls(runs: LocalRuns, process: int) -> None:
    """Stop rank 1, but not inside a call, where it has locked the file that asks it to save."""
    stop_unlocked(process, gate(runs, rank=1))


@pytest.mark.case("operator", "`trainrun run` is stopped (Ctrl-Z, SIGSTOP)")
def test_ranks_that_agree_on_a_save_do_not_wait_for_a_driver_that_is_stopped(
    runs: LocalRuns,
) -> None:
    runs.env = {"STEPS": "100000", "PAUSE": "0.02", "EVERY": "100000"}
    driver = runs.start()
    driver.wait_for_step(5)
    eventually(lambda: runs.steps(1), what="rank 1 has begun, too")
    agent, process = second_worker(runs)
    stop_between_calls(runs, process)
    driver.wait_for_step(runs.steps(1)[-1][1] + 1)  # it will not choose a call that is over
    stop(agent)  # so that the driver asks, and cannot decide
    driver.interrupt()
    wait_until_asked(runs, rank=0)
    driver.process.send_signal(signal.SIGSTOP)
    os.kill(agent, signal.SIGCONT)
    wait_until_asked(runs, rank=1)  # by what the driver had said, else by the other's ballot
    os.kill(process, signal.SIGCONT)

    def saved(rank: int) -> int:
        return next((step for _, step, what in runs.steps(rank) if what == "asked"), 0)

    eventually(lambda: saved(0) and saved(1), timeout=60, what="both ranks save")
    assert saved(0) == saved(1)
    driver.process.send_signal(signal.SIGCONT)
    ended = driver.end()
    assert ended.code == 130
    assert ended.status["phase"] == "Suspended"
    assert ended.status["checkpoint"]["step"] >= saved(0)
    assert ended.incidents == []
