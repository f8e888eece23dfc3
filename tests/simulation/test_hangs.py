"""Lives with a rank that hangs, and with those that only look like it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker
from tests.simulation.world.simulation import Simulation
from tests.simulation.world.weather import Weather
from tests.support.levels import some
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.config import RunConfig
from trainrun_operator.core.run.incidents import hangs
from trainrun_operator.core.run.stages import running


def watched(limit: timedelta = timedelta(seconds=60), **fields: object) -> RunConfig:
    return a_config(progress_timeout=limit, first_step_timeout=limit, **fields)


def lived_well(world: Simulation) -> bool:
    """To its end, and the judge has nothing to say."""
    world.live(HOUR)
    assert world.judge.closing() == []
    return world.status.phase == "Succeeded"


def training(world: Simulation) -> bool:
    return runs(world, 1) and all(a.training.step > 3 for a in world.gang(1) if a.training)


@pytest.mark.slow
@pytest.mark.case(
    "processes", "A process hangs, and health.progressTimeout is set", counted="maxFailures"
)
@pytest.mark.parametrize("seed", some(range(3), quick=2))
def test_a_rank_that_hangs_is_named_and_the_run_goes_on(seed: int) -> None:
    world = a_life(seed=seed, config=watched(), weather=Weather(loss=0.05, delay=0.5))
    until(world, lambda: training(world))
    begin = world.clock.now
    world.hang(worker(world, 1).agent)
    until(world, lambda: bool(causes(world)) or world.status.incident is not None)
    # A heartbeat later than the timeout, and after the wait for where the ranks stand.
    assert 60 <= world.clock.now - begin <= 60 + 15 + 10
    assert lived_well(world)
    assert causes(world) == ["Hung"]
    (incident,) = world.status.incidents
    assert (incident.slot, incident.rank, incident.budget) == (1, 1, "failures")
    assert incident.message.startswith("no step for 60 s (spec.health.progressTimeout): rank 1 ")


@pytest.mark.slow
@pytest.mark.case("processes", "A process hangs, and no timeout is set")
def test_a_hang_without_timeouts_is_told_within_six_minutes_and_left_alone() -> None:
    world = a_life()
    until(world, lambda: training(world))
    begin = world.clock.now
    world.hang(worker(world, 1).agent)
    until(world, lambda: world.status.condition("Hung") is not None, within=400.0)
    assert 300 <= world.clock.now - begin <= 360
    world.live(world.clock.now + 400)
    assert (causes(world), world.status.incident) == ([], None)
    told = world.status.condition("Hung")
    assert told is not None
    assert told.message.startswith("no step for 10 min or more (the slowest took ")
    assert ": rank 1 " in told.message


@pytest.mark.slow
@pytest.mark.case(
    "processes",
    "A process hangs longer than usual, with hangPolicy: Restart",
    counted="maxFailures",
)
@pytest.mark.parametrize("seed", some(range(3), quick=1))
def test_a_timeout_that_was_learned_ends_an_attempt_where_the_spec_says_so(seed: int) -> None:
    config = a_config(hang_policy="Restart")
    world = a_life(seed=seed, config=config, weather=Weather(loss=0.05, delay=0.5))
    until(world, lambda: training(world))
    world.hang(worker(world, 1).agent)
    assert lived_well(world)
    assert causes(world) == ["Hung"]
    (incident,) = world.status.incidents
    assert (incident.slot, incident.rank, incident.budget) == (1, 1, "failures")
    assert incident.message.startswith("no step for 5 min or more (the slowest took ")


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(4), quick=1))
def test_no_life_that_goes_well_is_called_hung(seed: int) -> None:
    world = a_life(seed=seed, weather=Weather(loss=0.1, delay=1.0), total_steps=300)
    until(world, lambda: training(world))
    world.kill_process(worker(world, 2).agent)
    assert lived_well(world)
    assert "Hung" not in {entry.reason for entry in world.status.history}


@pytest.mark.slow
@pytest.mark.case(
    "processes",
    "No rank reports a first step within health.firstStepTimeout",
    counted="maxFailures",
)
def test_a_rank_that_never_gets_to_its_first_step() -> None:
    world = a_life(config=watched())
    until(world, lambda: runs(world, 1))
    for slot in range(3):
        world.hang(worker(world, slot).agent)
    assert lived_well(world)
    assert causes(world) == ["Hung"]
    assert "spec.health.firstStepTimeout" in world.status.incidents[0].message


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(4), quick=1))
def test_agents_that_nobody_has_heard_for_a_while_are_not_hung(seed: int) -> None:
    """They have trained on meanwhile, for longer than the timeout."""
    brief = watched(timedelta(seconds=8), heartbeat_timeout=timedelta(seconds=30))
    world = a_life(seed=seed, config=brief, total_steps=120)
    until(world, lambda: training(world))
    for slot in range(3):
        world.silence(worker(world, slot).agent, 13.0)
    assert lived_well(world)
    assert "Hung" not in causes(world)


@pytest.mark.slow
def test_the_judge_notices_a_gang_that_is_called_hung_and_was_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = timedelta(seconds=0.2), "spec.health.progressTimeout"
    monkeypatch.setattr(hangs, "_limit", lambda _view, _living: limit)
    world = a_life(config=watched(limits={"failures": -1}))
    world.live(120)
    assert any(f"ended by {Cause.HUNG}" in mistake for mistake in world.judge.closing())


@pytest.mark.slow
def test_the_judge_notices_a_hang_that_ends_an_attempt_though_it_was_only_to_be_observed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "learned_hang", hangs.suspected_hang)
    world = a_life()
    until(world, lambda: training(world))
    world.hang(worker(world, 1).agent)
    world.live(world.clock.now + 400)
    assert any("and hangPolicy is Observe" in mistake for mistake in world.judge.closing())


def test_the_judge_notices_a_timeout_that_was_never_set(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = timedelta(seconds=10), "spec.health.progressTimeout"
    monkeypatch.setattr(hangs, "_limit", lambda _view, _living: limit)
    world = a_life()
    until(world, lambda: training(world))
    world.hang(worker(world, 1).agent)
    world.live(world.clock.now + 60)
    mistakes = world.judge.closing()
    assert any("progressTimeout'], which is not set" in mistake for mistake in mistakes)


def told_of_a_straggler(seed: int) -> bool:
    """In a life of some agents that tell that their ranks work longer than others."""
    world = a_life(seed=seed, total_steps=60)
    until(world, lambda: training(world) and world.clock.now > 40)
    told = world.status.condition("Straggler") is not None
    assert lived_well(world)
    assert causes(world) == []
    return told


@pytest.mark.slow
def test_a_rank_that_is_slower_than_its_peers_is_only_told() -> None:
    assert {told_of_a_straggler(seed) for seed in range(4)} == {True, False}
