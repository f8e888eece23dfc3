"""Ranks of PyTorch that stand still: who is away, and who only waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.local.local_runs import LocalRuns


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[LocalRuns]:
    """Three workers."""
    runs = LocalRuns(
        folder=tmp_path, replicas=3, script=str(Path(__file__).with_name("stuck_ranks.py"))
    )
    runs.spec = {
        "health": {"heartbeatTimeout": "9s", "progressTimeout": "5s", "firstStepTimeout": "3m"},
        "failurePolicy": {"maxFailures": 0},
    }
    yield runs
    runs.close()


def stuck(gang: LocalRuns, how: str) -> dict[str, Any]:
    """The incident that ends a run which stands still so."""
    gang.env = {"STUCK": how}
    ended = gang.run()
    assert ended.code == 1
    (incident,) = ended.incidents
    assert incident["cause"] == "Hung", incident
    assert gang.our_processes() == []
    return incident


@pytest.mark.case(
    "processes", "A process hangs, and health.progressTimeout is set", counted="maxFailures"
)
@pytest.mark.slow
def test_the_rank_that_is_not_in_the_collective_is_named(gang: LocalRuns) -> None:
    incident = stuck(gang, "away")
    assert (incident["hang"], incident["rank"]) == ("OneRankAway", 2), incident
    assert "rank 2 is in `away` (stuck_ranks.py:" in incident["message"]
    assert incident["message"].endswith("; 2 others in all_reduce")


@pytest.mark.slow
@pytest.mark.rare("tests/core/run/incidents/test_hang_diagnosis.py")
def test_a_collective_that_does_not_fit_is_named(gang: LocalRuns) -> None:
    incident = stuck(gang, "mismatched")
    assert (incident["hang"], incident["rank"]) == ("OneRankAway", 2), incident
    assert "; 2 others in all_reduce" in incident["message"]
    assert "one rank away: rank 2 is in " in incident["message"]


@pytest.mark.slow
@pytest.mark.rare("tests/core/run/incidents/test_hang_diagnosis.py")
def test_where_all_are_in_one_collective_nobody_is_blamed(gang: LocalRuns) -> None:
    incident = stuck(gang, "together")
    assert incident["hang"] == "SameCollective", incident
    assert "all 3 ranks are in all_reduce; no rank is known to be behind" in incident["message"]
    assert ("rank" in incident, incident.get("node", "")) == (False, "")
