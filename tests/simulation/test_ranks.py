"""Ranks that end at different times, say that they are finished, or do not find each other."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import (
    HOUR,
    a_config,
    a_life,
    asked_to_save_at_its_end,
    causes,
    until,
    worker,
)
from tests.support.builders import seconds
from tests.support.levels import some

NONE_LEFT = {"failures": 0, "preemptions": 0}


@pytest.mark.case("processes", "Some ranks end with 0 while others work on")
def test_ranks_that_need_no_other_go_on_when_one_has_ended_with_0() -> None:
    world = a_life(config=a_config(limits=NONE_LEFT), together=False)
    world.live(12)
    world.leave_early(worker(world, 0).agent)
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", [])
    checkpoint = world.status.checkpoint
    assert checkpoint is not None
    assert checkpoint.step == world.total_steps
    assert world.judge.closing() == []


@pytest.mark.case(
    "processes", "A rank ends with 0 while others need it in a collective", counted="maxFailures"
)
@pytest.mark.parametrize("hang", [False, True], ids=["connections break", "collectives time out"])
def test_a_rank_that_ends_with_0_while_others_need_it_costs_one_failure(hang: bool) -> None:
    world = a_life(hang_on_loss=hang)
    world.live(12)
    world.leave_early(worker(world, 1).agent)
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", ["AppError"])
    told = world.status.incidents[0].message
    assert told.endswith("; rank 1 had ended with exit code 0 before")
    assert world.judge.closing() == []


def test_a_script_that_says_finish_after_it_was_asked_to_save_has_succeeded() -> None:
    world = asked_to_save_at_its_end(says_finished=True)
    assert (world.status.phase, world.status.attempt) == ("Succeeded", 1)
    assert world.judge.closing() == []


def test_a_script_that_ends_after_it_was_asked_to_save_is_continued() -> None:
    world = asked_to_save_at_its_end(says_finished=False)
    assert (world.status.phase, world.status.attempt) == ("Succeeded", 2)
    assert world.judge.closing() == []


def test_a_script_that_finds_that_it_is_done_has_succeeded_before_its_last_step() -> None:
    world = a_life()
    world.live(12)
    world.finish_early()
    world.live(HOUR)
    checkpoint = world.status.checkpoint
    assert (world.status.phase, causes(world)) == ("Succeeded", [])
    assert checkpoint is not None
    assert checkpoint.step < world.total_steps
    assert world.judge.closing() == []


def test_one_of_several_processes_of_a_worker_that_is_killed_is_named_by_its_rank() -> None:
    world = a_life(config=a_config(processes_per_worker=2))
    world.live(12)
    world.kill_process(worker(world, 1).agent)
    world.live(HOUR)
    (incident,) = world.status.incidents
    assert (incident.slot, incident.cause, incident.message) == (
        1,
        "AppError",
        f"rank {incident.rank} was killed by SIGKILL",
    )
    assert incident.rank in (2, 3)
    assert world.status.phase == "Succeeded"
    assert world.judge.closing() == []


@pytest.mark.case(
    "processes",
    "The master port is taken or cannot be reached before the first step",
    counted="maxFailures after three in a row",
)
@pytest.mark.parametrize("hang", [False, True], ids=["others time out", "others hang"])
def test_ranks_that_do_not_find_each_other_three_times_cost_no_failure(hang: bool) -> None:
    world = a_life(config=a_config(limits=NONE_LEFT), hang_on_loss=hang, unmet=3)
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", ["RendezvousFailed"] * 3)
    assert world.status.failures.counted == 0
    assert world.judge.closing() == []


def test_ranks_that_do_not_find_each_other_a_fourth_time_cost_a_failure() -> None:
    world = a_life(config=a_config(limits=NONE_LEFT), unmet=4)
    world.live(HOUR)
    failed = world.status.condition("Failed")
    assert failed is not None
    assert failed.reason == "MaxFailuresExceeded"
    assert world.judge.closing() == []


@pytest.mark.case(
    "processes",
    "Some ranks meet and others do not find them before the first step",
    counted="maxFailures after three in a row",
)
@pytest.mark.parametrize("seed", some(range(6), quick=2))
@pytest.mark.parametrize("hang", [False, True], ids=["others fail", "others hang"])
def test_one_rank_that_the_others_do_not_find_costs_no_failure(hang: bool, seed: int) -> None:
    """Whatever the others say of it, and whoever is heard first."""
    config = a_config(limits=NONE_LEFT)
    world = a_life(config=config, seed=seed, hang_on_loss=hang, unmet=1, unmet_ranks=frozenset({2}))
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", ["RendezvousFailed"])
    assert world.status.failures.counted == 0
    assert world.judge.closing() == []


@pytest.mark.parametrize("left", [frozenset({2}), frozenset()], ids=["one", "the first of all"])
def test_ranks_that_look_for_one_that_has_left_give_up_at_no_cost(left: frozenset[int]) -> None:
    """They looked for it for ever, and an operator that said so was taken for wrong."""
    config = a_config(limits=NONE_LEFT, first_step_timeout=seconds(40))
    world = a_life(config=config, hang_on_loss=True, unmet=1, unmet_ranks=left)
    slot = min(left, default=0)
    until(world, lambda: any(w.slot == slot and w.agent.training for w in world.workers.values()))
    world.leave_early(worker(world, slot).agent)
    world.live(HOUR)
    assert (world.status.phase, causes(world)) == ("Succeeded", ["RendezvousFailed"])
    assert world.judge.closing() == []


def test_a_rank_that_finds_nobody_while_others_step_alone_costs_a_failure() -> None:
    """Before their first step it would be free: who steps has met whom it needs."""
    world = a_life(together=False, unmet=1, unmet_ranks=frozenset({1}))
    world.live(HOUR)
    assert world.status.phase == "Succeeded"
    (incident,) = world.status.incidents
    assert (incident.rank, incident.slot) == (1, 1)
    assert world.judge.closing() == []
