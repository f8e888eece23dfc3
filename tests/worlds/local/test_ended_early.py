"""Scripts that return without training after a restart, with real processes."""

from __future__ import annotations

import pytest

from tests.worlds.local.local_runs import LocalRuns


@pytest.mark.case(
    "script",
    "All processes end with 0 before a first step, and steps are lost",
    counted="maxFailures",
)
def test_a_killed_run_whose_script_only_says_that_its_folder_exists_has_failed(
    runs: LocalRuns,
) -> None:
    runs.script, runs.replicas = "returns.py", 1
    runs.spec = {"failurePolicy": {"maxFailures": 2, "backoff": {"initial": "0s", "max": "0s"}}}
    runs.env = {"REPORTS": "1", "STEPS": "8", "CHECKPOINT": "5"}
    ended = runs.run(json_lines=False)
    assert ended.code == 1
    assert "  | Experiment already exists" in ended.out
    assert "but an earlier one had reached step 8" in ended.out
    assert "(MaxFailuresExceeded)" in ended.out
    assert "call trainrun.finish() or report a checkpoint of the last step" in ended.out


@pytest.mark.case("script", "A run may have ended early, but no lost step proves it")
def test_a_script_that_reports_nothing_succeeds_with_a_warning(runs: LocalRuns) -> None:
    runs.script, runs.replicas = "returns.py", 1
    runs.spec = {"failurePolicy": {"maxFailures": 2}}
    runs.env = {"STEPS": "100"}
    driver = runs.start()
    told = driver.wait_for_event("EndedEarly")
    assert "This attempt reported no step and took" in told["message"]
    ended = driver.end()
    assert ended.code == 0
    complete = ended.condition("Complete")
    assert complete["message"].endswith("the last line of the output is: Experiment already exists")


def test_a_script_that_says_that_it_is_done_has_succeeded(runs: LocalRuns) -> None:
    runs.script, runs.replicas = "returns.py", 1
    runs.spec = {"failurePolicy": {"maxFailures": 2}}
    runs.env = {"REPORTS": "1", "STEPS": "3", "FINISH": "1"}
    ended = runs.run()
    assert (ended.code, [incident["cause"] for incident in ended.incidents]) == (0, ["AppError"])
