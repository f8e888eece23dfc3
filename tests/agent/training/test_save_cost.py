"""By how much a step with a checkpoint takes longer than one without, as an agent measures it."""

from __future__ import annotations

from trainrun.agent.training.save_cost import SaveCost


def after(*steps: tuple[float, bool], rank: int = 0, cost: SaveCost | None = None) -> SaveCost:
    """Steps from 1 on: the seconds of each, and whether it saves."""
    cost, now = cost or SaveCost(), 100.0
    for step, (seconds, saves) in enumerate(steps, start=1):
        now += seconds
        cost.stepped(rank, step, now, saves=saves)
    return cost


FIRST = (60.0, False)
PLAIN = [FIRST, *[(0.5, False)] * 5]


def test_a_save_costs_what_its_step_takes_longer_than_the_others() -> None:
    cost = after(*PLAIN, (0.75, True), (0.5, False), (1.0, True))
    assert cost.seconds == (0.25 + 0.5) / 2


def test_the_rank_whose_saves_take_longest_counts() -> None:
    cost = after(*PLAIN, (0.75, True))
    assert after(*PLAIN, (2.5, True), rank=1, cost=cost).seconds == 2.0


def test_a_report_of_several_steps_is_compared_with_as_many() -> None:
    cost = after(*PLAIN)
    cost.stepped(0, 16, 167.5, saves=True)  # ten steps, 5 s of training
    assert cost.seconds == 0.0
    cost.stepped(0, 18, 171.5, saves=True)
    assert cost.seconds == (0.0 + 3.0) / 2


def test_files_that_follow_the_report_of_their_step_come_after_its_training() -> None:
    cost = after(*PLAIN)
    cost.stepped(0, 6, 163.5, saves=True)
    assert cost.seconds == 1.0


def test_nothing_is_known_before_there_are_steps_to_compare_with() -> None:
    assert after().seconds == 0.0
    assert after(FIRST, (0.5, False), (9.0, True)).seconds == 0.0


def test_every_checkpoint_of_the_rank_with_most_is_counted() -> None:
    cost = after((60.0, True), (0.5, True), (0.5, False), (0.5, True))
    assert (after(FIRST, (0.5, True), rank=1, cost=cost).reported, cost.seconds) == (3, 0.0)
