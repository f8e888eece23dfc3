"""Whole lives of a script that never asks should_save() and has a handler of SIGTERM, or none."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker
from tests.simulation.world.simulation import Simulation


def a_deaf_life(**fields: object) -> Simulation:
    """It saves in the end, and on SIGTERM."""
    config = a_config(flush_timeout=timedelta(seconds=10))
    fields = {"on_sigterm": "Saves", **fields}
    world = a_life(config=config, asks=False, save_every=500, total_steps=100, **fields)
    until(world, lambda: runs(world, 1))
    world.live(world.clock.now + 12)
    return world


def resumed(world: Simulation) -> int:
    """The step from which attempt 2 has started, which is that at which all ranks had saved."""
    until(world, lambda: 2 in world.judge.records)
    point = world.judge.records[2].resume_point
    return point.step if point is not None else 0


@pytest.mark.slow
@pytest.mark.case(
    "nodes",
    "A worker gets a notice, and the script never asks should_save()",
    counted="maxPreemptions",
)
@pytest.mark.parametrize("reason", ["notice", "suspension", "rollout"])
def test_a_script_that_saves_on_sigterm_goes_on_from_there(reason: str) -> None:
    world = a_deaf_life()
    if reason == "notice":
        world.evict(worker(world, 1), grace=30)
    elif reason == "suspension":
        world.suspend(20)
    else:
        world.edit_template()
    assert resumed(world) >= 10
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert causes(world) == (["Preempted"] if reason == "notice" else [])
    assert world.judge.closing() == []


@pytest.mark.slow
def test_a_script_without_a_handler_loses_nothing_but_its_steps() -> None:
    world = a_deaf_life(on_sigterm="Dies")
    world.evict(worker(world, 1), grace=30)
    assert resumed(world) == 0
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", ["Preempted"])
    assert world.judge.closing() == []


@pytest.mark.slow
def test_one_that_ignores_the_signal_is_killed_when_its_grace_is_over() -> None:
    world = a_deaf_life(on_sigterm="Ignores")
    begun = world.clock.now
    world.suspend(60)
    until(world, lambda: world.status.is_true("Suspended"))
    assert 30 <= world.clock.now - begun < 35
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", [])
    assert world.judge.closing() == []


def test_a_run_without_budget_fails_after_its_script_has_saved() -> None:
    world = a_deaf_life()
    world.edit_limits({"failures": 0})
    world.evict(worker(world, 1), grace=30)
    until(world, lambda: world.status.finished)
    saved = {step for agent in world.gang(1) for step in agent.staging.steps}
    assert saved
    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.reason == "MaxFailuresExceeded"
