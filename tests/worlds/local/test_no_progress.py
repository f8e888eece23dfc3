"""A script that fails at the same step again and again, with real processes."""

from __future__ import annotations

import pytest

from tests.worlds.local.local_runs import LocalRuns


@pytest.mark.case(
    "processes", "The script fails at the same step again and again", counted="maxFailures"
)
def test_a_bug_at_the_same_step_ends_a_run_without_a_limit_of_failures(runs: LocalRuns) -> None:
    runs.spec = {
        "failurePolicy": {
            "maxFailures": -1,
            "noProgressLimit": 2,
            "backoff": {"initial": "0s", "max": "0s"},
        }
    }
    runs.replicas = 1  # ranks that do not need each other would get further while one fails
    runs.env = {**runs.commit_before(7, of=5), "FAIL_AT": "7", "FAIL_RANK": "0"}
    ended = runs.run()
    assert ended.code == 1
    failed = ended.condition("Failed")
    assert failed["reason"] == "NoProgress"
    assert "2 incidents in a row without a step above " in failed["message"]
    assert "spec.failurePolicy.noProgressLimit is 2" in failed["message"]
    assert [incident["counted"] for incident in ended.incidents] == [True, True, True]
    assert runs.begins() == [0, 5, 5]
