"""Lives in networks that are cut here and there: drawn by their number, and whether they hold.

A cut costs no healthy worker, and nothing is counted.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import get_args

from tests.simulation.one_run import a_config
from tests.simulation.world.partitions import CutKind, PartitionedLife

COMES_BACK = 15.0
"""Seconds until an agent has found the leader again, at the latest."""

LIFE = 1200.0
"""Virtual seconds: by then the run has succeeded in spite of what was repeated."""


def a_life(
    *, seed: int = 1, replicas: int = 3, timeout: float = 30.0, **more: object
) -> PartitionedLife:
    config = a_config(
        replicas=replicas,
        heartbeat_timeout=timedelta(seconds=timeout),
        start_timeout=timedelta(minutes=5),
    )
    return PartitionedLife(
        config=config,
        rng=random.Random(seed),
        grace=30.0,
        total_steps=70,
        save_every=10,
        step_seconds=3.0,
        **more,  # type: ignore[arg-type]
    )


def nothing_was_counted(world: PartitionedLife) -> None:
    """It succeeds in its first attempt."""
    world.live(LIFE)
    status = world.status
    assert [incident.message for incident in status.incidents] == []
    assert (status.phase, status.attempt, status.failures.counted) == ("Succeeded", 1, 0)
    assert world.judge.closing() == []


def nothing_happened(world: PartitionedLife) -> None:
    """Its first workers are its last."""
    nothing_was_counted(world)
    assert sorted(world.workers) == [f"run-{slot}-1" for slot in range(world.config.replicas)]


def drawn(number: int) -> PartitionedLife:
    """The life of this number, with one cut or two."""
    rng = random.Random(f"partition {number}")
    replicas = rng.randint(1, 4)
    world = a_life(
        seed=number,
        replicas=replicas,
        timeout=rng.choice([10.0, 30.0]),
        leader_node=rng.choice([f"n{rng.randrange(replicas)}", "m0"]),
        standby_node=rng.choice([f"n{rng.randrange(replicas)}", "m1"]),
    )
    over = partition(world, rng, rng.uniform(10.0, 20.0), 80.0)
    if rng.random() < 0.5:
        partition(world, rng, over + rng.uniform(15.0, 45.0), 45.0)
    return world


def partition(world: PartitionedLife, rng: random.Random, at: float, longest: float) -> float:
    """Plan one; returns when it is over.

    Before the training ends: of a worker whose peers have ended nothing tells that it works.
    """
    leader = rng.random() < 0.5
    workers = [f"n{slot}" for slot in range(world.config.replicas)]
    node = world.leader_node if leader else rng.choice(workers)
    kind = rng.choice([*get_args(CutKind), "outage"])
    seconds = rng.uniform(5.0, longest)
    others = [worker for worker in workers if worker != node]
    silent = others if node == world.leader_node else [node]
    if kind in ("operators", "to", "from") and len(silent) == len(workers):
        # Nobody is heard: what can be known ends after three timeouts.
        limit = 3 * world.config.heartbeat_timeout.total_seconds()
        seconds = min(seconds, limit - COMES_BACK)
    if kind == "outage":
        world.clock.after(at, lambda: world.stop_api_server(seconds))
    else:
        world.clock.after(at, lambda: world.cut(node, kind, seconds))
    return at + seconds
