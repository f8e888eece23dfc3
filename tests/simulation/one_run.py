"""One life of a run of three workers, told step by step: what breaks, and what comes of it."""

from __future__ import annotations

import random
from datetime import timedelta

from tests.simulation.world.simulation import Simulation
from tests.simulation.world.worker import SimWorker
from tests.support import builders
from trainrun_operator.core.run.config import RunConfig

HOUR = 3600.0


def a_config(**fields: object) -> RunConfig:
    defaults: dict[str, object] = {
        "name": "run",
        "uid": "uid",
        "replicas": 3,
        "template_hash": "t1",
        "checkpoints_uri": "file:///storage/run/checkpoints",
        "heartbeat_timeout": timedelta(seconds=5),
        "placement_timeout": timedelta(minutes=10),
        "limits": {"failures": 3, "preemptions": 3},
    }
    return builders.a_config(**(defaults | fields))


def a_life(*, seed: int = 1, config: RunConfig | None = None, **fields: object) -> Simulation:
    return Simulation(config=config or a_config(), rng=random.Random(seed), grace=30.0, **fields)  # type: ignore[arg-type]


def worker(world: Simulation, slot: int) -> SimWorker:
    here = [w for w in world.workers.values() if w.slot == slot and w.present]
    return max(here, key=lambda w: w.created_for)


def until(world: Simulation, what: object, *, within: float = 300.0) -> None:
    end = world.clock.now + within
    while not what() and world.clock.now < end and world.clock.step():  # type: ignore[operator]
        pass
    assert what(), f"not within {within} s: {world.status}"  # type: ignore[operator]


def causes(world: Simulation) -> list[str]:
    return [incident.cause for incident in world.status.incidents]


def runs(world: Simulation, attempt: int) -> bool:
    gang = [a for a in world.gang(attempt) if a.alive and a.training is not None]
    return len(gang) == world.config.replicas and all(a.training.alive for a in gang)  # type: ignore[union-attr]


def asked_to_save_at_its_end(*, says_finished: bool) -> Simulation:
    """Every rank is asked to save, and has nothing left to do after that."""
    world = a_life(says_finished=says_finished)
    until(world, lambda: runs(world, 1) and all(a.vote.calls > 3 for a in world.gang(1)))
    world.evict(worker(world, 1), grace=30)
    until(world, lambda: any(a.vote.committed is not None for a in world.gang(1)))
    world.finished_at = max(a.training.step for a in world.gang(1) if a.training is not None) + 1
    world.live(HOUR)
    return world
