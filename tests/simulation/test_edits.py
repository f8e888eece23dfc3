"""A run whose spec is edited while it lives: no mixed gang, nothing counted."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, until, worker
from tests.support.levels import some

STRICT = a_config(limits={"failures": 0, "preemptions": 0})
"""Nothing may be counted."""


@pytest.mark.slow
@pytest.mark.case("nodes", "The spec is edited while the run trains, starts or waits")
def test_another_address_of_the_storage_reaches_all_workers_together_and_is_no_failure() -> None:
    world = a_life(config=STRICT)
    world.live(12)
    world.edit_endpoint()
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", [])
    told = [event.message for _, event in world.told if event.reason == "TemplateChanged"]
    assert len(told) == 1
    assert told[0].startswith("storage.endpointURL has changed: saved step")
    assert {w.storage for w in world.workers.values() if w.present} == {world.config.storage}
    assert world.judge.closing() == []


@pytest.mark.parametrize("after", some([0.0, 0.3, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0], quick=3))
def test_an_address_edited_while_the_gang_starts_makes_no_mixed_gang(after: float) -> None:
    world = a_life(config=STRICT)
    world.live(after)
    world.edit_endpoint()
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", [])
    assert world.judge.closing() == []


@pytest.mark.case(
    "nodes",
    "An edit or a notice comes before a worker reports what happened to it",
    counted="one incident",
)
@pytest.mark.parametrize("after", some([0.1, 0.5, 1.0, 2.0], quick=2))
def test_an_address_edited_while_one_worker_is_replaced_makes_no_mixed_gang(after: float) -> None:
    """Its replacement would write to another store than its peers."""
    world = a_life()
    world.live(12)
    world.lose_node(worker(world, 1), known_after=0.0)
    world.live(12 + after)
    world.edit_endpoint()
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", ["NodeLost"])
    assert world.judge.closing() == []


def test_an_address_edited_while_the_run_is_suspended_counts_from_its_resumption() -> None:
    world = a_life(config=STRICT)
    world.live(12)
    world.suspend(60)
    until(world, lambda: world.status.phase == "Suspended")
    world.edit_endpoint()
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", [])
    assert "TemplateChanged" not in {event.reason for _, event in world.told}
    assert world.judge.closing() == []


@pytest.mark.case("nodes", "Somebody asks for a restart by annotation")
def test_a_restart_that_is_asked_for_loses_no_step_and_keeps_the_workers() -> None:
    world = a_life(config=STRICT)
    world.live(12)
    world.ask_for_restart()
    world.live(HOUR)
    assert (world.status.phase, causes(world), world.status.restarts) == ("Succeeded", [], 1)
    assert {w.created_for for w in world.workers.values()} == {1}
    assert world.judge.closing() == []
