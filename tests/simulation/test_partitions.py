"""Networks that are cut here and there: no healthy worker is given up, and nothing is counted."""

from __future__ import annotations

import pytest

from tests.simulation.partitioned import LIFE, a_life, drawn, nothing_happened, nothing_was_counted
from tests.support.levels import some

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


@pytest.mark.slow
@pytest.mark.case("operator", "A node's kube-proxy does not know the next leader")
@pytest.mark.parametrize("seed", some(range(5), quick=1))
@pytest.mark.parametrize("timeout", [10.0, 30.0])
def test_nobody_is_lost_after_a_long_outage_of_the_api_server_however_late_kube_proxy_is(
    seed: int, timeout: float
) -> None:
    world = a_life(seed=seed, timeout=timeout)
    world.clock.after(20.0, lambda: world.stop_api_server(100.0))
    nothing_happened(world)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.case("nodes", "The network between a node and the operators fails or drops packets")
@pytest.mark.parametrize("seed", some(range(30), quick=1))
def test_no_partition_costs_a_healthy_worker_or_counts(seed: int) -> None:
    """`make sim` lives others."""
    nothing_happened(drawn(seed))
