"""`trainrun logs -f` through a killed rank and a lost node: every line of who survives, once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.worlds.local.local_runs import TIMEOUT, LocalRuns

pytestmark = pytest.mark.slow


def logs(runs: LocalRuns, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trainrun_operator.cli", "logs", str(runs.write()), *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=runs.folder
    )


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in text.splitlines()]


def test_a_follower_sees_every_line_of_a_run_that_loses_a_rank_and_a_node(runs: LocalRuns) -> None:
    runs.replicas = 3
    runs.script = "talkative.py"
    runs.spec = {"failurePolicy": {"maxFailures": 5}}
    follower = logs(runs, "-f", "--json")
    assert follower.stderr is not None
    assert follower.stderr.readline() == "waiting for run tiny to be started on this machine\n"
    faults = ("--fault", "kill rank=1 step=8", "--fault", "node-loss rank=2 step=16")
    ended = runs.run(*faults)
    assert ended.code == 0, ended.stdout
    out, err = follower.communicate(timeout=TIMEOUT)
    assert follower.returncode == 0, err
    followed = rows(out)
    seen = [(row["attempt"], row["rank"], row["text"]) for row in followed if "text" in row]
    said = {(attempt, rank, text) for rank in range(3) for attempt, _, text in runs.steps(rank)}
    assert len(seen) == len(set(seen)), "a line is shown twice"
    lost = said - set(seen)
    assert {(attempt, rank) for attempt, rank, _ in lost} <= {(2, 2)}, "of the lost node alone"
    missing = [row for row in followed if "missing" in row]
    assert [(row["attempt"], row["worker"]) for row in missing] == [(2, "tiny-2-1")]
    # Afterwards the storage tells the same, but for the worker that was lost with its node.
    stored = rows(logs(runs, "--json").communicate(timeout=TIMEOUT)[0])
    again = [(row["attempt"], row["rank"], row["text"]) for row in stored if "text" in row]
    assert len(again) == len(set(again))
    gone = {(attempt, rank) for attempt, rank, _ in said - set(again)}
    assert gone <= {(1, 2), (2, 2)}
    assert {row["attempt"] for row in stored if "missing" in row} >= {2}
