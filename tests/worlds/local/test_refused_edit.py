"""An edit that a run cannot go on with: the command says so and ends."""

from __future__ import annotations

import pytest

from tests.worlds.local.local_runs import LocalRuns


@pytest.mark.case("operator", "The file of a run was edited so that it cannot go on")
def test_other_replicas_of_a_paused_run_end_the_command_with_the_field(runs: LocalRuns) -> None:
    runs.env = {"STEPS": "100000", "PAUSE": "0.02"}
    driver = runs.start()
    driver.wait_for_step(7)
    driver.interrupt()
    assert driver.end().code == 130
    runs.replicas = 3
    ended = runs.run()
    assert ended.code == 2
    assert "error: spec.workers.template: its command starts 3 processes" in ended.err
    assert "undo the edit of spec.workers (replicas, command)" in ended.err
    runs.replicas, runs.env = 2, {"STEPS": "60"}
    assert runs.run().code == 0
