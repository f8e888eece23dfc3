"""`trainrun run` again after a failure, with the file changed: it goes on with its budgets kept."""

from __future__ import annotations

import pytest

from tests.worlds.local.local_runs import LocalRuns


@pytest.mark.case("operator", "A run failed by a limit, and its user raises it")
def test_a_run_that_failed_goes_on_with_its_budgets_where_the_limit_was_raised(
    runs: LocalRuns,
) -> None:
    runs.env = {**runs.commit_before(8, of=5), "FAIL_AT": "8"}
    assert runs.run().code == 1
    runs.spec, runs.env = {"failurePolicy": {"maxFailures": 1}}, {}
    again = runs.run()
    assert again.code == 0, again.out[-3000:]
    assert "the run failed before (MaxFailuresExceeded); it continues" in again.err
    assert "since spec.failurePolicy.maxFailures now allows it" in again.err
    assert runs.begins() == [0, 5]
    assert [incident["attempt"] for incident in again.incidents] == [1]
    assert again.status["failures"]["text"] == "1/1"
    assert (again.status["attempt"], again.status["restarts"]) == (2, 1)
    assert "Reopened" in [event["reason"] for event in again.history]
    assert again.condition("Failed")["status"] == "False"
