"""What ended an attempt is told as what it was, once, and charged to the budget of that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.simulation.one_run import HOUR, a_config, a_life, causes, runs, until, worker


@pytest.mark.case(
    "nodes", "After a failure the template is edited or a survivor is lost", counted="its cause"
)
def test_a_crash_after_which_the_template_is_edited_is_a_crash() -> None:
    world = a_life(config=a_config(limits={"failures": 3, "preemptions": 0}), hang_on_loss=True)
    world.live(12)
    world.raise_exception(worker(world, 1).agent)
    world.live(12.3)
    world.edit_template()
    world.live(HOUR)
    assert causes(world) == ["AppError"]
    assert world.status.phase == "Succeeded"


@pytest.mark.slow
def test_a_crash_stays_one_when_an_idle_survivor_loses_its_node_minutes_later() -> None:
    world = a_life()
    world.live(12)
    world.store_away(600)
    world.raise_exception(worker(world, 1).agent)
    world.live(300)
    world.lose_node(worker(world, 2), known_after=1.0)
    world.live(HOUR)
    assert causes(world)[0] == "AppError"


@pytest.mark.case(
    "nodes", "A node is about to go, and nobody deletes its pod", counted="maxPreemptions"
)
def test_an_idle_worker_on_a_quarantined_node_makes_room_for_its_replacement() -> None:
    world = a_life(quota=3)
    world.live(12)
    world.quarantine(worker(world, 1))
    world.live(60)
    assert world.status.phase == "Succeeded"


@pytest.mark.case("operator", "The answer to a status write is lost")
def test_a_crash_is_told_when_the_answer_to_the_write_that_counts_it_gets_lost() -> None:
    world = a_life()
    world.live(12)
    world.operators[0].world.answers_lost = 1
    world.raise_exception(worker(world, 1).agent)
    world.live(HOUR)
    assert causes(world) == ["AppError"]
    assert len([event for _, event in world.told if "bad batch" in event.message]) == 1


def test_a_crash_is_told_once() -> None:
    world = a_life()
    world.live(12)
    world.raise_exception(worker(world, 1).agent)
    world.live(HOUR)
    assert len([event for _, event in world.told if "bad batch" in event.message]) == 1


def test_a_worker_that_fell_silent_stays_silent_when_we_delete_it() -> None:
    world = a_life(hang_on_loss=True)
    world.live(7)
    world.silence(worker(world, 0).agent, 24.6)
    world.live(HOUR)
    assert world.judge.closing() == []
    assert causes(world) == ["Silent"]


def test_a_better_explanation_is_told_once_though_the_leader_changes() -> None:
    world = a_life(hang_on_loss=False)
    world.live(12)
    world.lose_node(worker(world, 2), known_after=1.0)
    until(world, lambda: len(world.told) > 3)
    until(world, lambda: "NodeLost" in str(world.status.incident))
    world.live(world.clock.now + 0.5)
    world.crash_operator(world.operators[0], back_after=0.1)
    world.live(HOUR)
    assert world.judge.closing() == []


def test_an_incident_whose_time_lies_ahead_takes_no_other_out_of_the_window() -> None:
    limits = {"failures": 1, "preemptions": -1}
    world = a_life(config=a_config(limits=limits, window=timedelta(seconds=30)))
    world.judge.disturbed(60)
    world.operators[0].world.clock_ahead = 60
    world.live(12)
    world.evict(worker(world, 1), grace=30)
    until(world, lambda: runs(world, 2))
    world.operators[0].world.clock_ahead = 0
    for attempt in (2, 3):
        until(world, lambda attempt=attempt: runs(world, attempt))
        world.live(world.clock.now + 2)
        world.raise_exception(worker(world, 1).agent)
    until(world, lambda: world.status.is_true("Failed"))
    world.live(world.clock.now + 30)
    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.reason == "MaxFailuresExceeded"
    ahead, first, second = (incident.time for incident in world.status.incidents)
    assert ahead - second > second - first
    assert world.judge.closing() == []
