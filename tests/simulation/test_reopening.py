"""A run that has failed goes on when its user raises the limit, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker
from tests.simulation.world.simulation import Simulation


def failed(world: Simulation, attempt: int = 1) -> Simulation:
    """A rank dies in this attempt, and the run has failed by it."""
    until(world, lambda: runs(world, attempt))
    world.live(world.clock.now + 6)
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: world.status.is_true("Failed"))
    return world


def lived_well(world: Simulation) -> bool:
    until(world, lambda: not world.status.finished)
    world.tended = False
    world.live(world.clock.now + HOUR)
    assert world.judge.closing() == []
    return world.status.phase == "Succeeded"


@pytest.mark.case("operator", "A run failed by a limit, and its user raises it")
@pytest.mark.parametrize("after", [0.0, 0.1, 0.5, 1.0, 3.0, 90.0])
def test_a_limit_that_is_raised_lets_the_run_go_on_at_any_time(after: float) -> None:
    """Also while the workers of its last attempt still leave."""
    world = failed(a_life(config=a_config(limits={"failures": 0}), tended=True))
    world.live(world.clock.now + after)
    world.edit_limits({"failures": 1})
    assert lived_well(world)
    assert causes(world) == ["AppError"]
    assert world.status.failures.counted == 1


def test_a_limit_that_is_raised_in_the_moment_of_the_verdict_is_not_overlooked() -> None:
    world = a_life(config=a_config(limits={"failures": 0}))
    until(world, lambda: runs(world, 1))
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: world.status.incident is not None)
    world.edit_limits({"failures": 1})
    assert lived_well(world)


def test_an_operator_that_dies_over_it_leaves_it_to_the_next() -> None:
    world = failed(a_life(config=a_config(limits={"failures": 0}), tended=True))
    world.operators[0].crash_after = 0
    world.edit_limits({"failures": 1})
    assert lived_well(world)


@pytest.mark.slow
@pytest.mark.case("operator", "The operator dies, or the TTL ends, while a limit is raised")
def test_an_edit_in_the_moment_of_the_deletion_keeps_the_run() -> None:
    config = a_config(limits={"failures": 0}, ttl_after_finished=timedelta(seconds=20))
    world = failed(a_life(config=config, tended=True))
    world.operators[0].stale_status = True  # it does not hear of the edit in time
    world.live(world.clock.now + 15)
    world.edit_limits({"failures": 1})
    world.live(world.clock.now + 15)
    assert not world.deleted
    assert world.clock.now > 20
    assert lived_well(world)


def test_a_deadline_that_is_raised_lets_the_run_go_on() -> None:
    config = a_config(active_deadline=timedelta(seconds=15))
    world = a_life(config=config, tended=True)
    until(world, lambda: world.status.is_true("Failed"))
    world.live(world.clock.now + HOUR)
    world.edit(replace(world.config, active_deadline=timedelta(minutes=10)))
    assert lived_well(world)
    assert causes(world) == []
