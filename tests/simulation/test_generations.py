"""Lives of a run in a storage that an earlier TrainRun has used."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker
from tests.simulation.world.simulation import Simulation
from tests.simulation.world.store import SimCheckpoint
from tests.simulation.world.weather import Weather
from trainrun.contract.checkpoint_id import CheckpointId

OLD = CheckpointId(attempt=7, step=500)


def after_another(on_existing: str, *, seed: int = 1, finished: bool = True) -> Simulation:
    """Another TrainRun of this name has saved far beyond what this one will."""
    config = a_config(on_existing=on_existing)
    world = a_life(seed=seed, config=config, weather=Weather(loss=0.05, duplicate=0.1, delay=0.3))
    world.store.checkpoints[OLD] = SimCheckpoint(parts={0, 1, 2}, workers=3, manifest=True)
    world.store.claims = {1: None, 7: CheckpointId(attempt=6, step=400)}
    world.store.finished = finished
    world.store.others = True
    return world


def lives_on(world: Simulation, *, crashes: bool) -> None:
    """A worker is lost and a process dies; the operator too, where that is asked for."""
    until(world, lambda: runs(world, 1))
    assert "StartedFresh" in [entry.reason for entry in world.status.history]
    for attempt, hit in enumerate((world.raise_exception, world.kill_process), start=1):
        until(world, lambda number=attempt: runs(world, number))
        until(world, lambda: world.status.checkpoint is not None)
        if crashes:
            world.crash_operator(world.operators[0])
        hit(worker(world, 1).agent)
    world.live(HOUR)


@pytest.mark.slow
@pytest.mark.case("storage", "A run with onExisting: StartFresh finds a used folder")
@pytest.mark.parametrize("seed", range(8))
def test_a_run_that_starts_fresh_resumes_what_it_has_saved_itself(seed: int) -> None:
    world = after_another("StartFresh", seed=seed)
    lives_on(world, crashes=seed % 2 == 1)
    assert world.judge.closing() == []
    assert world.status.phase == "Succeeded"
    assert world.status.storage_generation == world.store.generation == 2
    (left,) = world.store.left
    assert set(left.checkpoints) == {OLD}
    assert (left.finished, left.generation) == (True, 1)
    assert all(point is None or point.step < OLD.step for point in world.store.claims.values())
    assert world.store.claims[1] is None
    assert len(causes(world)) == 2


def test_a_run_that_resumes_goes_on_where_the_other_one_was() -> None:
    world = after_another("Resume", finished=False)
    world.store.claims = {7: None}
    world.live(HOUR)
    assert world.status.storage_generation == world.store.generation == 1
    assert world.store.left == []
    assert world.store.claims[8] == OLD


def test_a_run_that_resumes_what_has_finished_ends_at_once() -> None:
    world = after_another("Resume")
    world.live(HOUR)
    done = world.status.condition("Complete")
    assert done is not None
    assert done.reason == "AlreadyFinished"
