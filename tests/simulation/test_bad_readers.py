"""One node that reads wrongly: no good checkpoint is given up for it, on virtual time."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from tests.simulation.one_run import HOUR, until, worker
from tests.simulation.world.simulation import Simulation
from tests.support import builders
from tests.support.levels import some
from trainrun_operator.api.run.status import Distrusted
from trainrun_operator.core.run.config import RunConfig


def a_config(**fields: object) -> RunConfig:
    defaults: dict[str, object] = {
        "replicas": 3,
        "checkpoints_uri": "file:///storage/run/checkpoints",
        "heartbeat_timeout": timedelta(seconds=5),
        "limits": {"failures": 1, "preemptions": 0},
    }
    return builders.a_config(**(defaults | fields))


def a_life(seed: int = 1, **fields: object) -> Simulation:
    return Simulation(config=a_config(**fields), rng=random.Random(seed))


@pytest.mark.slow
def test_a_node_that_reads_wrongly_for_long_before_it_reads_is_found_then() -> None:
    world = a_life()
    world.total_steps = 60
    world.live(5)
    world.misread(worker(world, 0))
    world.live(40)
    world.raise_exception(worker(world, 1).agent)
    world.live(HOUR)
    assert world.judge.closing() == []
    assert [i.cause for i in world.status.incidents] == ["AppError", "Misread"]


@pytest.mark.case(
    "storage", "One node reads a checkpoint wrongly", counted="maxFailures after three in a row"
)
@pytest.mark.parametrize("slot", [0, 1, 2])
@pytest.mark.parametrize("seed", some(range(3), quick=1))
def test_one_node_that_reads_wrongly_costs_its_worker_and_no_checkpoint(
    seed: int, slot: int
) -> None:
    world = a_life(seed)
    world.live(12)
    bad = worker(world, slot)
    world.misread(bad)
    world.raise_exception(worker(world, 1).agent)
    world.live(HOUR)
    assert world.judge.closing() == []
    assert world.status.phase == "Succeeded"
    assert world.store.bad == set()
    assert [i.cause for i in world.status.incidents] == ["AppError", "Misread"]
    assert world.status.failures.counted == 1
    assert world.status.distrusted == (Distrusted(node=f"node-{bad.name}"),)
    assert not bad.present
    points = [world.judge.records[attempt].resume_point for attempt in (2, 3)]
    assert points[0] == points[1]


@pytest.mark.slow
def test_the_second_reading_survives_a_change_of_leaders() -> None:
    world = a_life()
    world.live(12)
    world.misread(worker(world, 0))
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: any(w.agent.recheck for w in world.workers.values()))
    world.crash_operator(world.operators[0])
    world.live(HOUR)
    assert world.judge.closing() == []
    assert [i.cause for i in world.status.incidents] == ["AppError", "Misread"]


@pytest.mark.slow
@pytest.mark.case(
    "storage",
    "A bit has flipped in a checkpoint's file",
    counted="maxFailures after three in a row",
)
def test_what_is_damaged_is_set_aside_once_a_second_node_has_read_it() -> None:
    world = a_life()
    world.live(12)
    world.raise_exception(worker(world, 1).agent)
    until(world, lambda: 2 in world.judge.claims)
    handed = world.store.newest()
    world.damage()
    world.live(HOUR)
    assert world.judge.closing() == []
    assert world.status.phase == "Succeeded"
    assert world.store.bad == {handed}
    assert [i.cause for i in world.status.incidents] == ["AppError", "CheckpointDamaged"]
    assert world.status.distrusted == ()


@pytest.mark.case("storage", "A checkpoint reads wrongly, and no other node can read it")
@pytest.mark.slow
def test_with_one_node_one_checkpoint_falls_on_its_word_and_then_the_run_waits_and_says_why() -> (
    None
):
    world = a_life(replicas=1)
    world.live(14)
    world.misread(worker(world, 0))
    world.raise_exception(worker(world, 0).agent)
    world.live(HOUR)
    assert len(world.store.bad) == 1
    assert world.status.phase != "Failed"
    waits = world.status.condition("CheckpointSuspect")
    assert waits is not None
    assert waits.reason == "NoSecondReader"
    assert "Let a worker run on another node, or read it elsewhere" in waits.message
    assert "NoSecondReader" in {c.reason for c in world.status.conditions}
    assert [e.type for _, e in world.told if e.message == waits.message] == ["Warning"]
    world.misreading.clear()
    world.live(2 * HOUR)
    assert world.status.phase == "Succeeded"
    assert len(world.store.bad) == 1
    assert world.judge.closing() == []
