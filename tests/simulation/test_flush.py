"""What all ranks had reported is resumed; who is not ready is not counted on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, until, worker
from tests.simulation.world.agent import SimAgent
from tests.simulation.world.simulation import Simulation
from tests.simulation.world.store import SimStore
from tests.simulation.world.weather import Weather
from tests.support.levels import some
from trainrun.contract.answer import ResolveRequest
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.core.run import answers, drain, steps
from trainrun_operator.core.run.gang import roster
from trainrun_operator.core.run.stages import gathering, waiting
from trainrun_operator.core.run.view import View


def killed_after_a_report(seed: int) -> Simulation:
    """A process is killed once every rank has reported step 10."""
    world = a_life(seed=seed, save_every=10)
    until(world, lambda: len(world.gang(1)) == 3 and all(reported(a, 10) for a in world.gang(1)))
    world.kill_process(worker(world, 0).agent)
    return world


def reported(agent: SimAgent, step: int) -> bool:
    return agent.training is not None and agent.training.passed(step)


@pytest.mark.case(
    "storage", "A process dies right after every rank reported a checkpoint", counted="its cause"
)
@pytest.mark.parametrize("seed", some(range(10), quick=3))
def test_a_step_that_all_ranks_had_reported_is_resumed(seed: int) -> None:
    world = killed_after_a_report(seed)
    until(world, lambda: 2 in world.judge.records)
    point = world.judge.records[2].resume_point
    assert point is not None
    assert point.step == 10
    assert world.judge.mistakes == []


@pytest.mark.slow
@pytest.mark.case(
    "storage", "A process dies after such a report while the store is away", counted="its cause"
)
@pytest.mark.parametrize("seed", some(range(10), quick=3))
def test_a_step_that_all_ranks_had_reported_outlasts_an_outage_of_the_store(seed: int) -> None:
    world = a_life(seed=seed, save_every=10)
    until(world, lambda: len(world.gang(1)) == 3 and all(reported(a, 9) for a in world.gang(1)))
    world.store_away(90)
    until(world, lambda: all(reported(a, 10) for a in world.gang(1)))
    world.kill_process(worker(world, 0).agent)
    until(world, lambda: 2 in world.judge.records)
    point = world.judge.records[2].resume_point
    assert point is not None
    assert point.step == 10
    assert world.judge.mistakes == []


@pytest.mark.case(
    "nodes", "A worker's pod vanishes, or another pod takes its name", counted="maxPreemptions"
)
@pytest.mark.parametrize("seed", some(range(5), quick=2))
def test_a_step_whose_part_a_worker_had_stored_is_resumed_when_its_pod_vanishes(seed: int) -> None:
    world = a_life(seed=seed, save_every=10)
    world.grace = 0.0  # its object is gone at once, and the world tells nothing of it any more
    until(world, lambda: len(stored(world)) == 1)
    world.live(world.clock.now + 0.06)  # it has told so
    world.vanish(worker(world, stored(world)[0]))
    until(world, lambda: 2 in world.judge.records)
    point = world.judge.records[2].resume_point
    assert point is not None
    assert point.step == 10
    assert world.judge.mistakes == []


def stored(world: Simulation) -> list[int]:
    """Slots whose part of step 10 is in the store."""
    return [a.slot for a in world.gang(1) if 10 in a.staging.steps and a.staging.steps[10].uploaded]


def seldom(seed: int, *, every: float = 600.0) -> Simulation:
    """All ranks save every other step, and few steps are uploaded by time."""
    config = a_config(upload_every=timedelta(seconds=every), flush_timeout=timedelta(seconds=20))
    return a_life(seed=seed, save_every=2, config=config)


@pytest.mark.case(
    "storage", "A process dies between two uploads (checkpoint.uploadEvery)", counted="its cause"
)
@pytest.mark.parametrize("seed", some(range(5), quick=2))
def test_a_crash_between_two_uploads_costs_the_steps_since_the_newest_save(seed: int) -> None:
    world = seldom(seed)
    until(world, lambda: len(world.gang(1)) == 3 and all(reported(a, 10) for a in world.gang(1)))
    assert not any(entry.manifest for entry in world.store.checkpoints.values())
    world.store_away(seed % 15)
    world.kill_process(worker(world, 0).agent)
    until(world, lambda: 2 in world.judge.records)
    point = world.judge.records[2].resume_point
    assert point is not None
    assert point.step >= 10
    assert world.judge.mistakes == []


def started_from_disks(seed: int) -> Simulation:
    """Attempt 2 runs from what was staged, and nothing is stored yet."""
    world = seldom(seed)
    until(world, lambda: len(world.gang(1)) == 3 and all(reported(a, 10) for a in world.gang(1)))
    world.kill_process(worker(world, 0).agent)
    until(world, lambda: 2 in world.judge.records)
    assert world.judge.records[2].staged
    assert not any(entry.manifest for entry in world.store.checkpoints.values())
    return world


@pytest.mark.slow
def test_a_resume_point_on_the_disks_is_stored_while_the_attempt_runs() -> None:
    world = started_from_disks(1)
    point = world.judge.records[2].resume_point
    until(world, lambda: any(entry.manifest for entry in world.store.checkpoints.values()))
    [stored] = [c for c, entry in world.store.checkpoints.items() if entry.manifest]
    assert (stored, world.status.attempt) == (point, 2)
    world.live(HOUR)
    assert (world.status.phase, world.judge.mistakes) == ("Succeeded", [])


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(10), quick=1))
def test_a_holder_that_is_lost_before_the_upload_costs_its_steps_and_nothing_else(
    seed: int,
) -> None:
    world = started_from_disks(seed)
    world.lose_node(worker(world, 1), known_after=0.1)
    until(world, lambda: any(n > 2 for n in world.judge.records))
    point = world.judge.records[max(world.judge.records)].resume_point
    assert point is None
    assert [e.reason for e in world.status.history if e.reason == "FlushGivenUp"]
    assert causes(world) == ["AppError", "NodeLost"]
    world.live(HOUR)
    assert (world.status.phase, world.judge.mistakes) == ("Succeeded", [])


@pytest.mark.slow
@pytest.mark.case(
    "nodes", "A node is lost between two uploads (checkpoint.uploadEvery)", counted="maxPreemptions"
)
def test_a_node_that_is_lost_between_two_uploads_costs_what_was_not_uploaded() -> None:
    world = seldom(1, every=5.0)
    until(world, lambda: all(reported(a, 14) for a in world.gang(1)) and world.gang(1))
    committed = max(c.step for c, entry in world.store.checkpoints.items() if entry.manifest)
    assert 0 < committed < 14
    world.lose_node(worker(world, 1), known_after=2.0)
    until(world, lambda: 2 in world.judge.records)
    point = world.judge.records[2].resume_point
    assert point is not None
    assert point.step >= committed
    world.live(HOUR)
    assert (world.status.phase, world.judge.mistakes) == ("Succeeded", [])


def with_buddies(seed: int) -> Simulation:
    """Few steps are uploaded by time; every worker has a copy of step 10 or a later one."""
    config = a_config(
        upload_every=timedelta(seconds=600),
        flush_timeout=timedelta(seconds=20),
        buddy=True,
        replicas=4,
    )
    world = a_life(seed=seed, save_every=2, config=config)
    until(world, lambda: len(world.gang(1)) == 4 and all(has_copy(a, 10) for a in world.gang(1)))
    return world


def has_copy(agent: SimAgent, step: int) -> bool:
    return any(copy.complete and copy.step >= step for copy in agent.buddy.copies.values())


@pytest.mark.slow
@pytest.mark.case(
    "nodes", "A node is lost between two uploads (checkpoint.buddy)", counted="maxPreemptions"
)
@pytest.mark.parametrize("seed", some(range(4), quick=1))
def test_a_node_with_a_buddy_costs_the_steps_since_the_newest_copy(seed: int) -> None:
    world = with_buddies(seed)
    assert not any(entry.manifest for entry in world.store.checkpoints.values())
    world.lose_node(worker(world, seed % 4), known_after=2.0)
    until(world, lambda: 2 in world.judge.records)
    point = world.judge.records[2].resume_point
    assert point is not None
    assert point.step >= 10
    world.live(HOUR)
    assert (world.status.phase, world.judge.mistakes) == ("Succeeded", [])
    assert causes(world) == ["NodeLost"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(2), quick=1))
@pytest.mark.parametrize(("other", "resumes"), [(1, False), (2, True)])
def test_two_nodes_at_once_cost_more_only_if_one_is_the_buddy_of_the_other(
    seed: int, other: int, *, resumes: bool
) -> None:
    world = with_buddies(seed)
    for slot in (0, other):
        world.lose_node(worker(world, slot), known_after=2.0)
    until(world, lambda: 2 in world.judge.records)
    assert (world.judge.records[2].resume_point is not None) == resumes
    world.live(HOUR)
    assert (world.status.phase, world.judge.mistakes) == ("Succeeded", [])


def test_a_run_that_ends_between_two_uploads_has_its_last_step_in_the_store() -> None:
    world = seldom(2)
    world.live(HOUR)
    stored = [c.step for c, entry in sorted(world.store.checkpoints.items()) if entry.manifest]
    assert (world.status.phase, stored) == ("Succeeded", [24])


def test_a_suspension_between_two_uploads_waits_for_the_newest_step() -> None:
    world = seldom(3)
    until(world, lambda: all(reported(a, 10) for a in world.gang(1)) and world.gang(1))
    world.suspend(30)
    until(world, lambda: world.status.phase == "Suspended")
    assert world.status.checkpoint is not None
    assert world.status.checkpoint.step >= 10


@pytest.mark.slow
def test_a_resume_point_that_is_claimed_before_the_flush_ends_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roster, "acknowledged", lambda *_: True)
    monkeypatch.setattr(gathering, "still_flushing", lambda _: ())
    mistakes = []
    for seed in range(30):
        world = killed_after_a_report(seed)
        until(world, lambda world=world: 2 in world.judge.records)
        mistakes += world.judge.mistakes
    assert mistakes
    assert "attempt 2 resumes from None while step 10 is being stored" in mistakes[0]


@pytest.mark.slow
def test_a_drop_of_the_newest_step_that_all_ranks_have_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "to_drop", lambda view: (steps.newest_staged(view) or 0,))
    world = seldom(1)
    until(world, lambda: world.gang(1) and all(reported(a, 11) for a in world.gang(1)))
    world.kill_process(worker(world, 0).agent)
    until(world, lambda: 2 in world.judge.records)
    assert "is being stored" in world.judge.mistakes[0]


@pytest.mark.slow
def test_a_start_from_a_step_that_not_all_hold_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The core asks for it before all have described it, and the store believes that."""
    monkeypatch.setattr(roster, "acknowledged", lambda *_: True)
    monkeypatch.setattr(gathering, "still_flushing", lambda _: ())
    monkeypatch.setattr(waiting, "held", held_by_some)
    monkeypatch.setattr(gathering, "held_by", lambda *_: True)
    monkeypatch.setattr(SimStore, "_staged", believed)
    mistakes = []
    for seed in range(10):
        world = seldom(seed)
        until(world, lambda world=world: len(all_at(world, 10)) == 3)
        world.kill_process(worker(world, 0).agent)
        until(world, lambda world=world: 2 in world.judge.records)
        mistakes += world.judge.mistakes
    assert mistakes, "nobody was too early"
    assert "attempt 2 resumes from" in mistakes[0]
    assert "which is incomplete or damaged" in mistakes[0]


def all_at(world: Simulation, step: int) -> list[SimAgent]:
    return [agent for agent in world.gang(1) if reported(agent, step)]


def held_by_some(view: View) -> CheckpointId | None:
    held = (point for w in view.workers if w.agent is not None for point in w.agent.holds)
    return max(held, default=None)


def believed(store: SimStore, request: ResolveRequest, stored: CheckpointId | None) -> Any:
    STAGED(store, request, stored)
    return request.staged


STAGED = SimStore._staged


@pytest.mark.slow
def test_a_copy_that_nobody_is_told_to_store_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (drain, answers):
        monkeypatch.setattr(module, "stood_in", lambda _: {})
    world = with_buddies(1)
    world.lose_node(worker(world, 1), known_after=2.0)
    until(world, lambda: 2 in world.judge.records)
    assert "is being stored" in world.judge.mistakes[0]


def test_a_suspension_that_is_taken_back_at_once_costs_nothing() -> None:
    """A worker that was told to leave was taken for ready, and its leaving for a failure."""
    world = a_life(config=a_config(replicas=1), weather=Weather(delay=1.5))
    world.live(3)
    world.suspend(1)
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    assert causes(world) == []
