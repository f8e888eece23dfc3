"""A store that refuses a run that has trained, or is away now and then: it is waited for."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker
from tests.simulation.world.simulation import Simulation
from trainrun_operator.core.run.config import RunConfig


def a_rotated_secret(
    minutes: float, *, seed: int = 1, config: RunConfig | None = None
) -> Simulation:
    """It runs, has a checkpoint, and its Secret holds wrong keys from now on."""
    world = a_life(seed=seed, config=config, total_steps=60)
    until(world, lambda: runs(world, 1) and world.store.newest() is not None)
    world.rotate(60 * minutes)
    return world


def refused(world: Simulation) -> bool:
    return world.status.store_wait is not None


@pytest.mark.slow
@pytest.mark.case("storage", "The store refuses a run that has trained before")
@pytest.mark.parametrize("slot", [0, 2])
def test_keys_that_are_wrong_for_two_minutes_cost_a_preempted_run_nothing(slot: int) -> None:
    world = a_rotated_secret(2)
    healthy = [worker(world, s).name for s in range(3) if s != slot]
    world.preempt(worker(world, slot), grace=0.2, known=True)
    until(world, lambda: refused(world))
    until(world, lambda: runs(world, 2), within=HOUR)
    assert world.clock.now < 6 * 60
    assert [worker(world, s).name for s in range(3) if s != slot] == healthy
    world.live(HOUR)
    assert world.judge.closing() == []
    assert world.status.phase == "Succeeded"
    assert causes(world) == ["Preempted"]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_operators_that_die_while_it_is_refused_lose_nothing(seed: int) -> None:
    world = a_rotated_secret(10, seed=seed)
    world.preempt(worker(world, 1), grace=0.2, known=True)
    until(world, lambda: refused(world))
    for moment in range(40):
        world.live(world.clock.now + world.rng.uniform(1, 40))
        if moment < 30:
            world.crash_operator(world.operators[0])
            world.add_operator()
    world.live(world.clock.now + HOUR)
    assert world.judge.closing() == []
    assert world.status.phase == "Succeeded"
    assert causes(world) == ["Preempted"]
    made = [int(name.rpartition("-")[2]) for name in world.workers if name.startswith("run-1-")]
    assert len(made) <= 8  # after 30 s, 1, 2, 5, 5 minutes


@pytest.mark.slow
def test_keys_that_stay_wrong_for_an_hour_end_it_and_nothing_is_counted() -> None:
    world = a_rotated_secret(180, config=a_config(replicas=1))
    world.preempt(worker(world, 0), grace=0.2, known=True)
    until(world, lambda: world.status.finished, within=2 * HOUR)
    world.live(world.clock.now + 10)  # it is told
    assert world.judge.closing() == []
    failed = world.status.condition("Failed")
    assert failed is not None
    assert (failed.status, failed.reason) == ("True", "StorageMisconfigured")
    assert world.status.failures.counted == 0
    assert world.clock.now > HOUR


@pytest.mark.slow
@pytest.mark.case("storage", "Trouble with the store comes, goes and comes back")
def test_two_hiccups_with_hours_without_room_between_them_end_no_run() -> None:
    world = a_life(config=a_config(replicas=1))
    until(world, lambda: runs(world, 1) and world.store.newest() is not None)
    world.store_away(2.0)
    world.raise_exception(worker(world, 0).agent)
    until(world, lambda: refused(world))
    world.room.capacity = 0
    world.evict(worker(world, 0), grace=0.2)
    world.live(world.clock.now + 2 * HOUR)
    assert world.status.phase == "Restarting"
    world.store_away(5.0)
    world.room.capacity = None
    world.live(world.clock.now + HOUR)
    assert world.judge.closing() == []
    assert world.status.phase == "Succeeded"
