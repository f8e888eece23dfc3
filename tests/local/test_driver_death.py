"""kill -9 of `trainrun run`: its agents end, the same command goes on, nothing is counted."""

from __future__ import annotations

import random
import time

from tests.local.local_runs import LocalRuns
from tests.support.eventually import eventually

ROUNDS = 20


def test_agents_end_within_ten_seconds_of_their_driver(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "100000"}
    driver = runs.start()
    driver.wait_for_step(7)
    assert len(runs.our_processes()) == 4
    driver.kill()
    eventually(lambda: not runs.our_processes(), timeout=10, what="agents and processes end")


def test_the_same_command_takes_over_at_once_and_counts_nothing(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "60", "PAUSE": "0.05"}
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
