"""Scripts that return at once after a restart, as if there were nothing left to do."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, worker
from tests.simulation.world.simulation import Simulation
from trainrun_operator.core.run.stages import running


def killed_and_returning(attempts: int, *, max_failures: int) -> Simulation:
    """A rank is killed after some steps; in so many attempts after that the script returns."""
    world = a_life(config=a_config(limits={"failures": max_failures}))
    world.live(13)
    world.returning = attempts
    world.kill_process(worker(world, 1).agent)
    world.live(HOUR)
    return world


@pytest.mark.case(
    "script",
    "All processes end with 0 before a first step, and steps are lost",
    counted="maxFailures",
)
def test_a_script_that_returns_once_without_a_step_is_started_again_and_trains_to_the_end() -> None:
    world = killed_and_returning(1, max_failures=3)
    assert (world.status.phase, causes(world)) == ("Succeeded", ["AppError", "EndedEarly"])
    assert world.status.failures.text == "2/3"
    assert world.judge.closing() == []


def test_a_script_that_always_returns_fails_by_its_budget() -> None:
    world = killed_and_returning(10, max_failures=2)
    assert (world.status.phase, world.status.reason) == ("Failed", "MaxFailuresExceeded")
    assert causes(world) == ["AppError", "EndedEarly", "EndedEarly"]
    assert world.judge.closing() == []


def test_a_success_without_the_lost_steps_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.ended_early, "ended_early", lambda _view: None)
    world = killed_and_returning(1, max_failures=3)
    assert "the run has succeeded, and attempt 2 has done nothing" in world.judge.closing()[0]
