"""`trainrun logs -f` through a killed rank and a lost node: every line of who survives, once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.worlds.local.local_runs import TIMEOUT, LocalRuns

pytestmark = pytest.mark.slow


def logs(runs: LocalRuns, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trainrun_operator.cli", "logs", str(runs.write()), *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=runs.folder
    )


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(row) for row in text.splitlines()]


@pytest.mark.case("operator", "A node dies before the last lines of its processes are stored")
def test_a_follower_sees_every_line_of_a_run_that_loses_a_rank_and_a_node(runs: LocalRuns) -> None:
    runs.replicas = 3
    runs.script = "talkative.py"
    runs.spec = {"failurePolicy": {"maxFailures": 5}}
    follower = logs(runs, "-f", "--json")
    assert follower.stderr is not None
    assert follower.stderr.readline() == "waiting for run tiny to start on this machine\n"
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


@pytest.mark.case("script", "Processes print faster than their reader reads")
def test_the_end_of_a_flood_is_shown_however_slow_its_reader_is(runs: LocalRuns) -> None:
    lines = 60_000
    runs.script, runs.env = "flood.py", {"FLOOD": str(lines)}
    runs.spec = {
        "failurePolicy": {"maxFailures": 2, "backoff": {"initial": "0s", "max": "0s"}},
        "workers": {"independentRanks": True},
    }
    runs.storage.mkdir()
    follower = logs(runs, "-f", "--json")
    command = [sys.executable, "-m", "trainrun_operator.cli", "run", str(runs.write()), "--json"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=runs.folder)
    runs.drivers.append(driver)

    def ended() -> list[str]:
        outputs = [path.read_text() for path in runs.state.glob("nodes/*/output.log")]
        return [text for text in outputs if "the end of rank" in text]

    eventually(lambda: len(ended()) == 2, timeout=TIMEOUT, what="the end of both ranks")
    told = rows(driver.communicate(timeout=TIMEOUT)[0].decode())
    assert told[-1]["event"] == "status"
    assert told[-1]["exitCode"] == 0
    texts = [row["line"] for row in told if row["event"] == "output"]
    missing = sum(row["lines"] for row in told if row["event"] == "missing")
    assert missing > 0, "the reader was not slow"
    for rank in (0, 1):
        assert f"[rank {rank}] the end of rank {rank}" in texts
        (output,) = runs.state.glob(f"nodes/tiny-{rank}-*/output.log")
        assert output.read_text().count(f" of rank {rank}: ") == lines
    in_files = sum(len(p.read_text().splitlines()) for p in runs.state.glob("nodes/*/output.log"))
    assert len(texts) + missing == in_files
    followed = rows(follower.communicate(timeout=TIMEOUT)[0])
    assert sum("text" in row for row in followed) == 2 * (lines + 1)
    assert not [row for row in followed if "missing" in row]
