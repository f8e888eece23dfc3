"""What was written earlier, or of something else, is not taken for what holds now."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, runs, until, worker


@pytest.mark.slow
@pytest.mark.case("storage", "Trouble with the store comes, goes and comes back")
def test_a_store_that_hiccups_after_a_suspended_day_is_waited_for() -> None:
    world = a_life()
    world.live(12)
    world.misconfigure(5.0)
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: "Misconfigured" in str(world.status.conditions))
    world.suspend(24 * HOUR)
    world.live(24 * HOUR)
    world.misconfigure(10.0 + 24 * HOUR + 12 - world.clock.now)
    world.live(26 * HOUR)
    assert world.status.phase == "Succeeded"


@pytest.mark.slow
def test_a_port_clash_after_three_preemptions_is_tried_again() -> None:
    world = a_life(config=a_config(limits={"failures": 0, "preemptions": -1}), total_steps=60)
    for attempt in range(1, 4):
        until(world, lambda a=attempt: runs(world, a))
        world.preempt(worker(world, 1), grace=0.2, known=True)
    until(world, lambda: runs(world, 4))
    world.raise_exception(worker(world, 0).agent, "RuntimeError: Address already in use")
    world.live(HOUR)
    assert world.status.phase == "Succeeded"


@pytest.mark.case("operator", "A leader's clock is hours ahead, and another one takes over")
def test_a_leader_whose_clock_was_ahead_does_not_delay_the_next_attempt_of_its_successor() -> None:
    world = a_life()
    first = world.operators[0]
    first.world.clock_ahead = 6 * HOUR
    for attempt in (1, 2):
        until(world, lambda a=attempt: runs(world, a))
        world.raise_exception(worker(world, 1).agent)
    until(world, lambda: world.status.fruitless == 2)
    world.crash_operator(first)
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
