"""Networks that are cut here and there: no healthy worker is given up, and nothing is counted."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import get_args

import pytest

from tests.simulation.one_run import a_config
from tests.simulation.world.partitions import CutKind, PartitionedLife
from tests.support.levels import some

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
    world.live(LIFE)
    status = world.status
    assert [incident.message for incident in status.incidents] == []
    assert (status.phase, status.attempt, status.failures.counted) == ("Succeeded", 1, 0)
    assert world.judge.closing() == []


def nothing_happened(world: PartitionedLife) -> None:
    nothing_was_counted(world)
    assert sorted(world.workers) == [f"run-{slot}-1" for slot in range(world.config.replicas)]


# ------------------------------------------------------------------ what users have seen


@pytest.mark.case("nodes", "Only the API server cannot reach a node")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.slow
def test_a_worker_beside_the_leader_is_kept_when_only_the_api_server_cannot_reach_them(
    seed: int,
) -> None:
    world = a_life(seed=seed, leader_node="n0")
    world.clock.after(20.0, lambda: world.cut("n0", "api", 120.0))
    nothing_happened(world)
    assert world.replicas["b"].operator is not None, "the other one leads"


@pytest.mark.slow
def test_without_addresses_that_worker_would_be_lost() -> None:
    world = a_life(leader_node="n0", addresses_told=False)
    world.clock.after(20.0, lambda: world.cut("n0", "api", 120.0))
    world.live(LIFE)
    assert [(incident.cause, incident.slot) for incident in world.status.incidents] == [
        ("NodeLost", 0)
    ]


@pytest.mark.case("operator", "A node's kube-proxy does not know the next leader")
@pytest.mark.parametrize("seed", some(range(5), quick=1))
@pytest.mark.parametrize("timeout", [10.0, 30.0])
def test_nobody_is_lost_after_a_long_outage_of_the_api_server_however_late_kube_proxy_is(
    seed: int, timeout: float
) -> None:
    world = a_life(seed=seed, timeout=timeout)
    world.clock.after(20.0, lambda: world.stop_api_server(100.0))
    nothing_happened(world)


@pytest.mark.case("operator", "Workers do not reach the operators that took over")
@pytest.mark.parametrize("replicas", [1, 3])
def test_nothing_is_counted_of_workers_that_do_not_reach_the_next_leader(replicas: int) -> None:
    """All operators have new addresses, say, and the Service's name is not found on the nodes."""
    world = a_life(replicas=replicas, leader_node="m0", standby_node="m1")
    for slot in range(replicas):
        world.clock.after(20.0, lambda node=f"n{slot}": world.cut(node, "operators", 700.0))
    world.clock.after(21.0, lambda: world.cut("m0", "api", 60.0))
    world.live(600.0)
    told = world.status.condition("Unreachable")
    assert told is not None
    assert told.message.startswith("this operator gets no heartbeat from worker run-0-1 on node ")
    nothing_happened(world)


@pytest.mark.case("operator", "A node with a whole gang is cut off from the operators alone")
@pytest.mark.parametrize("crash", [None, 85.0, 100.0, 112.0])
def test_a_node_with_a_whole_gang_that_is_cut_off_from_the_operators_alone_costs_nothing(
    crash: float | None,
) -> None:
    world = a_life(replicas=1, timeout=15.0, leader_node="m0", standby_node="m1")
    world.clock.after(20.0, lambda: world.cut("n0", "operators", 100.0))
    if crash is not None:
        world.clock.after(crash, lambda: world.cut("m0", "api", 40.0))
    world.live(115.0)
    if crash is None:
        told = world.status.condition("Unreachable")
        assert told is not None
        assert told.reason == "TrainsOn"
        there = [name for name, worker in world.workers.items() if worker.phase == "Running"]
        assert there == ["run-0-1"]
    nothing_was_counted(world)


# ------------------------------------------------------------------ whatever is cut


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


@pytest.mark.case("nodes", "The network between a node and the operators fails or drops packets")
@pytest.mark.parametrize("seed", some(range(200), quick=1))
def test_no_partition_costs_a_healthy_worker_or_counts(seed: int) -> None:
    rng = random.Random(f"partition {seed}")
    replicas = rng.randint(1, 4)
    world = a_life(
        seed=seed,
        replicas=replicas,
        timeout=rng.choice([10.0, 30.0]),
        leader_node=rng.choice([f"n{rng.randrange(replicas)}", "m0"]),
        standby_node=rng.choice([f"n{rng.randrange(replicas)}", "m1"]),
    )
    over = partition(world, rng, rng.uniform(10.0, 20.0), 80.0)
    if rng.random() < 0.5:
        partition(world, rng, over + rng.uniform(15.0, 45.0), 45.0)
    nothing_happened(world)
