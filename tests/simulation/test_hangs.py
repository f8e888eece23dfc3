"""Lives with a rank that hangs, and with those that only look like it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker
from tests.support.levels import some
from trainrun_operator.core.run.causes import Cause
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.incidents import hangs
from trainrun_operator.simulation.simulation import Simulation
from trainrun_operator.simulation.weather import Weather


def watched(limit: timedelta = timedelta(seconds=60), **fields: object) -> RunConfig:
    return a_config(progress_timeout=limit, first_step_timeout=limit, **fields)


def lived_well(world: Simulation) -> bool:
    """To its end, and the judge has nothing to say."""
    world.live(HOUR)
    assert world.judge.closing() == []
    return world.status.phase == "Succeeded"


def training(world: Simulation) -> bool:
    return runs(world, 1) and all(a.training.step > 3 for a in world.gang(1) if a.training)


@pytest.mark.parametrize("seed", some(range(5), quick=2))
def test_a_rank_that_hangs_is_named_and_the_run_goes_on(seed: int) -> None:
    world = a_life(seed=seed, config=watched(), weather=Weather(loss=0.05, delay=0.5))
    until(world, lambda: training(world))
    begin = world.clock.now
    world.hang(worker(world, 1).agent)
    until(world, lambda: bool(causes(world)) or world.status.incident is not None)
    assert 60 <= world.clock.now - begin <= 60 + 15
    assert lived_well(world)
    assert causes(world) == ["Hung"]
    (incident,) = world.status.incidents
    assert (incident.slot, incident.rank, incident.budget) == (1, 1, "failures")
    assert incident.message.startswith("no step for 60 s (spec.health.progressTimeout): rank 1 ")


def test_a_hang_without_timeouts_is_left_alone() -> None:
    world = a_life()
    until(world, lambda: training(world))
    world.hang(worker(world, 1).agent)
    world.live(world.clock.now + 600)
    assert (causes(world), world.status.incident) == ([], None)


def test_a_rank_that_never_gets_to_its_first_step() -> None:
    world = a_life(config=watched())
    until(world, lambda: runs(world, 1))
    for slot in range(3):
        world.hang(worker(world, slot).agent)
    assert lived_well(world)
    assert causes(world) == ["Hung"]
    assert "spec.health.firstStepTimeout" in world.status.incidents[0].message


@pytest.mark.parametrize("seed", some(range(10), quick=1))
def test_agents_that_nobody_has_heard_for_a_while_are_not_hung(seed: int) -> None:
    """They have trained on meanwhile, for longer than the timeout."""
    brief = watched(timedelta(seconds=8), heartbeat_timeout=timedelta(seconds=30))
    world = a_life(seed=seed, config=brief, total_steps=120)
    until(world, lambda: training(world))
    for slot in range(3):
        world.silence(worker(world, slot).agent, 13.0)
    assert lived_well(world)
    assert "Hung" not in causes(world)


def test_the_judge_notices_a_gang_that_is_called_hung_and_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = timedelta(seconds=0.2), "spec.health.progressTimeout"
    monkeypatch.setattr(hangs, "_limit", lambda _view, _living: limit)
    world = a_life(config=watched(limits={"failures": -1}))
    world.live(120)
    assert any(f"ended by {Cause.HUNG}" in mistake for mistake in world.judge.closing())
