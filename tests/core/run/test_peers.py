"""A checkpoint is read from the store once per node: the others copy from the lowest slot there."""

from __future__ import annotations

from tests.support.builders import WorkerObservation, a_run
from trainrun.contract.answer import PeerSource, Start


def on_nodes(*nodes: str) -> WorkerObservation:
    scene = a_run(replicas=len(nodes)).running(resume=(1, 30))
    for slot, node in enumerate(nodes):
        scene = scene.with_worker(slot, node=node).with_agent(slot, serves=f"10.0.0.{slot}:9000")
    return scene


def source(scene: WorkerObservation, slot: int) -> PeerSource | None:
    order = scene.answer(slot).order
    assert isinstance(order, Start)
    return order.source


def test_the_lowest_slot_of_a_node_reads_the_store_and_the_others_copy_from_it() -> None:
    scene = on_nodes("a", "b", "a", "b", "a")
    assert [source(scene, slot) for slot in range(2)] == [None, None]
    lead = scene.worker(0).agent
    assert lead is not None
    assert source(scene, 2) == source(scene, 4)
    assert source(scene, 2) == PeerSource(address="10.0.0.0:9000", secret=lead.agent)
    other = source(scene, 3)
    assert other is not None
    assert other.address == "10.0.0.1:9000"


def test_who_serves_nothing_is_no_source() -> None:
    assert source(on_nodes("a", "a").with_agent(0, serves=""), 1) is None


def test_the_agent_tells_its_node_where_the_world_does_not() -> None:
    scene = on_nodes("", "").with_agent(0, node="x").with_agent(1, node="x")
    assert source(scene, 1) is not None
    assert source(scene.with_agent(1, node="y"), 1) is None


def test_workers_whose_nodes_nobody_knows_are_not_taken_for_neighbours() -> None:
    scene = on_nodes("", "").with_agent(0, node="").with_agent(1, node="")
    assert source(scene, 1) is None


def test_a_worker_that_was_not_heard_is_no_source() -> None:
    found = source(on_nodes("a", "a", "a").unheard(0), 2)
    assert found is not None
    assert found.address == "10.0.0.1:9000"


def test_sources_change_nothing_else_in_the_order() -> None:
    scene = on_nodes("a", "a")
    first, second = scene.answer(0).order, scene.answer(1).order
    assert isinstance(first, Start)
    assert isinstance(second, Start)
    assert (first.attempt, first.resume, first.master_port) == (
        second.attempt,
        second.resume,
        second.master_port,
    )
