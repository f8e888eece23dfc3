"""Trainings that stand still in ways that a heartbeat does not show: each is found, explained and
ended, although no process hears SIGTERM."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.local.local_runs import Ended, LocalRuns

OTHER = "; 1 other in `barrier` (stuck.py:"


def stuck(runs: LocalRuns, how: str) -> tuple[Ended, dict[str, Any]]:
    """A run whose rank 1 stands still so, to its end, and the incident."""
    runs.spec = {
        "health": {"heartbeatTimeout": "6s", "progressTimeout": "5s"},
        "failurePolicy": {"maxFailures": 0},
    }
    runs.script, runs.env = "stuck.py", {"STUCK": how}
    ended = runs.run()
    assert ended.code == 1
    (incident,) = ended.incidents
    assert incident["cause"] == "Hung"
    assert runs.our_processes() == []
    return ended, incident


def story_of(incident: dict[str, Any]) -> str:
    """The part of its message that tells what was found."""
    found: str = incident["message"].partition("1 other at 3; ")[2]
    return found or incident["message"].partition("1 other at 2; ")[2] or incident["message"]


@pytest.mark.slow
def test_a_stopped_process(runs: LocalRuns) -> None:
    _, incident = stuck(runs, "stopped")
    assert (incident["hang"], incident["rank"]) == ("OneRankAway", 1)
    found = story_of(incident)
    assert found.startswith("one rank away: rank 1 is stopped by a signal (state T)"), incident
    assert OTHER in found


@pytest.mark.case(
    "processes", "A process hangs, and health.progressTimeout is set", counted="maxFailures"
)
@pytest.mark.slow
def test_a_sleep_inside_a_step(runs: LocalRuns) -> None:
    _, incident = stuck(runs, "sleeping")
    assert (incident["hang"], incident["rank"]) == ("Unknown", 1)
    found = story_of(incident)
    assert found.startswith("cause unknown: rank 1 is in `sleeping` (stuck.py:"), incident
    assert OTHER in found


@pytest.mark.slow
def test_a_rank_that_computes_for_ever_and_holds_the_gil(runs: LocalRuns) -> None:
    _, incident = stuck(runs, "computing")
    assert (incident["hang"], incident["rank"]) == ("Unknown", 1)
    found = story_of(incident)
    assert found.startswith("cause unknown: rank 1 computes ("), incident
    assert " in `computing` (stuck.py:" in found
    assert OTHER in found


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK), reason="root and /dev/fuse mount FUSE"
)
def test_a_file_system_that_does_not_answer(runs: LocalRuns) -> None:
    _, incident = stuck(runs, "no_storage")
    assert (incident["hang"], incident["rank"]) == ("WaitingForInput", 1)
    found = story_of(incident)
    assert found.startswith("waiting for input or storage: rank 1 "), incident
    assert OTHER in found


@pytest.mark.slow
def test_a_pipe_that_nobody_writes_to(runs: LocalRuns) -> None:
    _, incident = stuck(runs, "no_writer")
    assert (incident["hang"], incident["rank"]) == ("WaitingForInput", 1)
    found = story_of(incident)
    assert found.startswith("waiting for input or storage: rank 1 is in `no_writer`"), incident
    assert OTHER in found


@pytest.mark.slow
def test_a_process_that_loads_data_has_died(runs: LocalRuns) -> None:
    _, incident = stuck(runs, "loader_died")
    assert (incident["hang"], incident["rank"]) == ("WaitingForInput", 1)
    found = story_of(incident)
    place = "rank 1 is in `DataLoader.__next__` (stuck.py:"
    assert found.startswith(f"waiting for input or storage: {place}"), incident
    assert "1 of its child processes is dead" in found


@pytest.mark.slow
def test_a_rank_whose_output_nobody_reads(runs: LocalRuns) -> None:
    _, incident = stuck(runs, "output_full")
    assert (incident["hang"], incident["rank"]) == ("WaitingForInput", 1)
    found = story_of(incident)
    assert "rank 1 waits for its output to be read in `output_full` (stuck.py:" in found
    folder = Path(runs.storage, "tiny", incident["evidence"])
    assert sorted(path.name for path in folder.iterdir()) == [
        "worker-00000.json",
        "worker-00001.json",
    ]
    (rank,) = json.loads((folder / "worker-00001.json").read_text())["ranks"]
    assert "in output_full" in rank["stacks"]
    assert (rank["rank"], rank["step"], rank["readBy"]) == (1, 2, "faulthandler")
