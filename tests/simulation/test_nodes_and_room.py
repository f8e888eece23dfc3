"""Nodes that die without a word, and gangs that compete for room, on virtual time."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from tests.simulation.world.clock import Clock
from tests.simulation.world.room import Room
from tests.simulation.world.simulation import Simulation
from tests.support import builders
from tests.support.levels import some
from trainrun_operator.core.run.config import RunConfig


def a_config(**fields: object) -> RunConfig:
    defaults: dict[str, object] = {
        "name": "run",
        "uid": "uid",
        "replicas": 4,
        "template_hash": "t1",
        "checkpoints_uri": "file:///storage/run/checkpoints",
        "heartbeat_timeout": timedelta(seconds=5),
    }
    return builders.a_config(**(defaults | fields))


@pytest.mark.slow
@pytest.mark.case("nodes", "A node falls silent (power, network)", counted="maxPreemptions")
@pytest.mark.case(
    "nodes",
    "Peers report connection errors before the operator learns of the node",
    counted="one incident",
)
@pytest.mark.parametrize("hang", [False, True], ids=["peers fail first", "peers hang"])
@pytest.mark.parametrize("suspected_after", some([0.0, 4.0, 7.0, 20.0, 30.0], quick=2))
@pytest.mark.parametrize("seed", some(range(2), quick=1))
def test_a_node_that_dies_without_a_word_is_one_lost_node(
    seed: int, suspected_after: float, *, hang: bool
) -> None:
    """Whoever speaks first, and however late the node is missed: never charged to the script."""
    config = a_config(limits={"failures": 0, "preemptions": -1})
    world = Simulation(config=config, rng=random.Random(seed), hang_on_loss=hang)
    world.live(12)
    victim = next(w for w in world.workers.values() if w.slot == 2)
    world.darken(victim, suspected_after=suspected_after)
    world.live(3600)
    status = world.status
    assert world.judge.closing() == []
    assert (status.phase, status.failures.counted, status.failures.preemptions) == (
        "Succeeded",
        0,
        1,
    )
    assert [incident.cause for incident in status.incidents] == ["NodeLost"]
    assert not victim.present, "it was deleted by force"


def test_a_dead_node_is_left_behind_within_the_heartbeat_timeout_and_a_few_seconds() -> None:
    world = Simulation(
        config=a_config(limits={"failures": 0, "preemptions": -1}),
        rng=random.Random(3),
        hang_on_loss=True,
    )
    world.live(12)
    begin = world.clock.now
    world.darken(next(w for w in world.workers.values() if w.slot == 2), suspected_after=4.0)
    while world.status.attempt < 2 and world.clock.step():
        pass
    assert world.clock.now - begin < 12


@pytest.mark.parametrize("seed", some(range(2), quick=1))
def test_a_worker_without_room_says_nothing(seed: int) -> None:
    """One that spoke once took part in an attempt, which was charged for its silence after that."""
    room = Room(capacity=1)
    world = Simulation(config=a_config(replicas=2), rng=random.Random(seed), room=room)
    world.live(15)
    homeless = {w.name for w in world.workers.values() if w.phase == "Pending"}
    assert len(homeless) == 1
    assert all(world.operators[0].agents.contact(name).state is None for name in homeless)


@pytest.mark.slow
@pytest.mark.case("nodes", "Only a part of the gang finds room")
@pytest.mark.parametrize("seed", some(range(4), quick=1))
def test_two_runs_of_which_only_one_fits_both_finish(seed: int) -> None:
    clock, room = Clock(), Room(capacity=5)
    worlds = [
        Simulation(
            config=a_config(uid=f"uid-{number}", placement_timeout=timedelta(seconds=30)),
            rng=random.Random(10 * seed + number),
            clock=clock,
            room=room,
        )
        for number in range(2)
    ]
    while clock.now < 3600 and not all(world.over() for world in worlds) and clock.step():
        pass
    for world in worlds:
        assert world.judge.closing() == []
        assert world.status.phase == "Succeeded", world.status
        assert world.status.failures.counted == 0
        assert world.status.restarts == 0


@pytest.mark.slow
@pytest.mark.case(
    "nodes", "Somebody deletes a worker with a grace period", counted="maxPreemptions"
)
@pytest.mark.parametrize("seed", some(range(2), quick=1))
def test_a_worker_that_somebody_deletes_costs_at_most_the_step_under_way(seed: int) -> None:
    config = a_config(limits={"failures": 0, "preemptions": -1})
    world = Simulation(config=config, rng=random.Random(seed), save_every=1000)
    world.live(12)
    world.evict(next(w for w in world.workers.values() if w.slot == 1), grace=30)
    world.live(3600)
    assert world.judge.closing() == []
    (incident,) = world.status.incidents
    assert (world.status.phase, incident.cause) == ("Succeeded", "Preempted")
    # The judge sees that no step is lost which all ranks had reported.
    assert incident.lost_steps in (0, 1)
