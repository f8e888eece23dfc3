"""Gangs of 200 workers: what breaks in them costs no more than in a small one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, until, worker
from tests.simulation.world.simulation import Simulation

WORKERS = 200


def a_large_gang() -> Simulation:
    """Its training has begun."""
    world = a_life(
        config=a_config(
            replicas=WORKERS,
            heartbeat_timeout=timedelta(seconds=30),
            limits={"failures": 0, "preemptions": -1},
        ),
        beat=5.0,
        pass_seconds=0.25,
        total_steps=8,
    )
    until(world, lambda: any(a.training and a.training.step >= 4 for a in world.gang(1)))
    return world


def lose_a_node(world: Simulation) -> None:
    world.lose_node(worker(world, 117), known_after=1.0)


def evict_forty(world: Simulation) -> None:
    for slot in range(100, 140):
        world.evict(worker(world, slot), grace=10)


def crash_the_operator(world: Simulation) -> None:
    world.crash_operator(world.operators[0], back_after=3.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("happens", "expected"),
    [(lose_a_node, ["NodeLost"]), (evict_forty, ["Preempted"]), (crash_the_operator, [])],
)
def test_a_gang_of_200_survives(happens: Callable[[Simulation], None], expected: list[str]) -> None:
    world = a_large_gang()
    happens(world)
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", expected)
    assert world.judge.closing() == []
