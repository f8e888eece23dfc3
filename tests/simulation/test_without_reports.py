"""Whole lives of a script that never reports, and goes on from a folder of its own."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, runs, until, worker
from tests.simulation.world.simulation import Simulation

KILLS = 5


def waits(world: Simulation, *, trained: float) -> list[float]:
    """Backoff after each of some attempts that were killed after so long a training; seconds."""
    found = []
    for attempt in range(1, KILLS + 1):
        until(world, lambda attempt=attempt: runs(world, attempt), within=HOUR)  # type: ignore[misc]
        world.live(world.clock.now + trained)
        world.kill_process(worker(world, 1).agent)
        until(world, lambda: world.status.ending is not None)
        ending = world.status.ending
        assert ending is not None
        pause = ending.not_before - ending.time if ending.not_before is not None else None
        found.append(pause.total_seconds() if pause is not None else 0.0)
    return found


def a_mute_life() -> Simulation:
    config = a_config(limits={"failures": -1, "preemptions": -1})
    return a_life(config=config, reports=False, total_steps=200)


@pytest.mark.case("script", "The script never reports, and its framework posts steps")
@pytest.mark.slow
def test_a_script_that_trains_for_minutes_and_reports_nothing_restarts_at_once() -> None:
    world = a_mute_life()
    assert waits(world, trained=90) == [0.0] * KILLS
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert world.status.progress.step is None
    assert world.status.posted is not None
    assert world.status.posted.step == 200
    assert [incident.cause for incident in world.status.incidents] == ["AppError"] * KILLS
    assert world.judge.closing() == []


@pytest.mark.slow
def test_one_that_fails_within_seconds_waits_longer_and_longer() -> None:
    world = a_mute_life()
    first, second, *later = waits(world, trained=10)
    assert (first, sorted(later)) == (0.0, later)
    assert 0.0 < second < later[0] < later[-1]
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert world.judge.closing() == []
