"""A checkpoint that is whole, and of which its script dies: the one before is tried, once."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker
from tests.simulation.world.simulation import Simulation
from tests.support.levels import some

MANY = a_config(limits={"failures": -1, "preemptions": -1})


def spoiled(seed: int) -> Simulation:
    """Its newest checkpoint, not its first one, cannot be loaded; and a process dies."""
    world = a_life(seed=seed, config=MANY, save_every=5)
    until(world, lambda: len([c for c in world.store.checkpoints.values() if c.manifest]) > 1)
    world.spoil()
    world.kill_process(worker(world, 0).agent)
    return world


def tried(world: Simulation) -> list[int]:
    return sorted(n for n, record in world.judge.records.items() if record.trial_of is not None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(8), quick=1))
def test_a_night_is_not_burnt(seed: int) -> None:
    world = spoiled(seed)
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert tried(world) == [4]
    assert len(causes(world)) == 3
    assert world.judge.mistakes == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(8), quick=1))
def test_a_script_that_can_load_nothing_is_back_at_its_newest_checkpoint(seed: int) -> None:
    world = spoiled(seed)
    world.store.unloadable |= set(world.store.checkpoints)
    until(world, lambda: 7 in world.judge.records, within=HOUR)
    newest = max(world.store.unloadable)
    points = [world.judge.records[number].resume_point for number in range(2, 8)]
    assert [point == newest for point in points] == [True, True, False, True, True, True]
    world.store.unloadable.clear()  # its user has mended the script
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert tried(world) == [4]
    assert world.judge.mistakes == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(8), quick=1))
def test_a_trial_that_is_preempted_is_tried_again(seed: int) -> None:
    world = spoiled(seed)
    until(world, lambda: 4 in world.judge.records and runs(world, 4))
    world.vanish(worker(world, 1))
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert tried(world)[:1] == [4]
    assert world.judge.mistakes == []


@pytest.mark.case(
    "storage",
    "Two attempts in a row die while they open the same good checkpoint",
    counted="its cause",
)
@pytest.mark.parametrize("seed", some(range(15), quick=1))
def test_operators_that_die_at_any_action_try_it_once(seed: int) -> None:
    world = spoiled(seed)
    for after in range(6):
        until(world, lambda: 3 in world.judge.records and world.operators, within=HOUR)
        world.operators[0].crash_after = (seed + after) % 5
        world.live(world.clock.now + 4)
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert len(tried(world)) == 1
    assert world.judge.mistakes == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(8), quick=1))
def test_deaths_of_two_roots_move_nothing(seed: int) -> None:
    world = a_life(seed=seed, config=MANY, save_every=5)
    until(world, lambda: len([c for c in world.store.checkpoints.values() if c.manifest]) > 1)
    for attempt in range(1, 6):
        until(world, lambda attempt=attempt: runs(world, attempt), within=HOUR)
        agent = worker(world, 0).agent
        if attempt % 2:
            world.kill_process(agent)
        else:
            world.raise_exception(agent)
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert tried(world) == []
    assert world.judge.mistakes == []
