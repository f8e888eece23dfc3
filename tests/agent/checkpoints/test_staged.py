"""Which steps are staged on a worker, and how far each is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.checkpoints.steps_of import bring, staging
from trainrun.agent.checkpoints.staged import StagedSteps
from trainrun.contract.messages import Report


def test_a_part_is_complete_when_every_rank_has_passed_its_step() -> None:
    steps = staging()
    bring(steps, 0, 5)
    assert not steps.complete(5)
    assert steps.reports(1, 7), "somebody waited for that"
    assert steps.complete(5)
    assert [entry.step for entry in steps.uploadable()] == [5]


def test_a_part_is_open_while_a_rank_may_bring_files_for_the_step_that_it_has_reported() -> None:
    steps = staging()
    bring(steps, 0, 5)
    assert not steps.reports(1, 5)
    assert not steps.complete(5)
    assert steps.not_passed_by(5) == (1,)
    assert steps.only_open(5)
    assert steps.last_steps == (5, 5)
    assert steps.reports(1, 6), "now it is clear that it has none"
    assert steps.complete(5)


def test_files_that_follow_a_report_of_their_step_complete_it() -> None:
    steps = staging()
    bring(steps, 0, 5)
    steps.reports(1, 5)
    bring(steps, 1, 5)
    [entry] = steps.uploadable()
    assert sorted(entry.files) == [0, 1]


def test_a_rank_that_says_that_it_has_no_files_passes_at_once() -> None:
    steps = staging()
    bring(steps, 0, 5)
    assert not steps.only_open(5), "rank 1 has said nothing"
    assert steps.reports(1, 5, nothing=True)
    assert steps.complete(5)


def test_the_newest_step_that_all_have_passed_is_told() -> None:
    steps = staging()
    bring(steps, 0, 5)
    assert steps.passed_by_all == -1
    steps.reports(1, 5)
    assert steps.passed_by_all == 4
    steps.exited_well(1)
    assert steps.passed_by_all == 5
    steps.exited_well(0)
    assert steps.passed_by_all == -1, "whose end is told anyway"


def test_metrics_of_an_earlier_step_open_nothing_again() -> None:
    steps = staging()
    bring(steps, 0, 5)
    steps.reports(1, 6)
    steps.reports(1, 5)
    assert steps.complete(5)
    assert steps.last_step(1) == 6


def test_a_rank_that_exited_well_passes_every_step() -> None:
    steps = staging()
    bring(steps, 0, 5)
    steps.exited_well(1)
    assert steps.complete(5)


def test_whole_files_wait_for_nobody() -> None:
    steps = staging()
    bring(steps, 0, 5, whole=True)
    assert steps.complete(5)


def test_the_metrics_of_a_step_are_those_of_the_lowest_rank_that_brought_files() -> None:
    steps = staging()
    bring(steps, 1, 5, metrics={"loss": 1})
    bring(steps, 0, 5, metrics={"loss": 0})
    [entry] = steps.uploadable()
    assert (entry.step, entry.metrics) == (5, {"loss": 0})


def test_a_rank_that_brought_files_without_metrics_leaves_those_of_another() -> None:
    steps = staging()
    bring(steps, 0, 5)
    bring(steps, 1, 5, metrics={"loss": 1})
    [entry] = steps.uploadable()
    assert entry.metrics == {"loss": 1}


def test_the_metadata_of_a_step_is_that_of_the_lowest_rank_that_gave_any() -> None:
    steps = staging()
    bring(steps, 1, 5, metadata={"from": 1})
    bring(steps, 0, 5)
    [entry] = steps.uploadable()
    assert entry.metadata == {"from": 1}


def test_a_commit_forgets_older_steps_but_lists_what_was_asked_for() -> None:
    steps = staging(0)
    bring(steps, 0, 5)
    bring(steps, 0, 6, after_save=True)
    bring(steps, 0, 7)
    assert sorted(map(str, steps.commit(6))) == ["0/5", "0/6"]
    assert [(s.step, s.uploaded) for s in steps.describe(1.0)] == [(6, True), (7, False)]
    assert not bring(steps, 0, 6), "nobody wants it any more"


def test_a_dropped_step_is_told_and_never_comes_back() -> None:
    steps = staging(0)
    bring(steps, 0, 5)
    assert steps.drop(5) == [Path("0/5")]
    steps.open([5], 0.0)
    assert not bring(steps, 0, 5)
    assert steps.dropped == (5,)
    assert steps.describe(0.0) == ()


def test_a_step_whose_marker_is_out_is_not_dropped() -> None:
    steps = staging(0)
    bring(steps, 0, 5)
    steps.uploaded(5, [0])
    assert steps.drop(5) == []
    assert steps.dropped == ()


@pytest.mark.case("storage", "A script catches StagingFailed and goes on")
def test_a_step_whose_files_could_not_be_staged_is_lost_once_its_rank_goes_on() -> None:
    steps = staging()
    bring(steps, 0, 5)
    steps.lacks(1, 5)
    assert steps.lost() == []
    steps.reports(1, 6)
    assert steps.lost() == [5]
    assert steps.lost() == [], "told once"


def test_a_rank_that_stages_its_files_after_all_has_lost_nothing() -> None:
    steps = staging()
    steps.lacks(1, 5)
    bring(steps, 1, 5)
    steps.reports(1, 6)
    assert steps.lost() == []


def test_a_rank_that_ends_without_its_files_has_lost_them() -> None:
    steps = staging()
    steps.lacks(1, 5)
    steps.exited_well(1)
    assert steps.lost() == [5]


def pend(steps: StagedSteps, rank: int, step: int, *, after_save: bool = False) -> None:
    report = Report(step=step, pending=True, metrics={"loss": 1.0})
    steps.pend(rank, report, after_save=after_save, now=0.0)
    steps.reports(rank, step)


def test_a_rank_whose_save_is_pending_passes_that_step_only_with_its_files() -> None:
    steps = staging()
    bring(steps, 0, 5)
    pend(steps, 1, 5)
    steps.reports(1, 9)
    steps.reports(0, 9)
    assert steps.not_passed_by(5) == (1,)
    assert not steps.only_open(5), "its files take room"
    assert steps.passed_by_all == 4
    assert steps.saved(1, 5, now=7.0).metrics == {"loss": 1.0}
    bring(steps, 1, 5)
    assert steps.complete(5)
    assert steps.passed_by_all == 8


def test_a_step_that_only_pending_saves_know_is_listed_as_incomplete() -> None:
    """Another worker brings files for it, and must not take this one's part for empty."""
    steps = staging(0)
    pend(steps, 0, 5)
    steps.reports(0, 9)
    assert [(s.step, s.ranks, s.complete) for s in steps.describe(0.0)] == [(5, (), False)]


def test_files_that_were_saved_before_a_save_was_asked_for_do_not_answer_it() -> None:
    steps = staging(0)
    pend(steps, 0, 5)
    pend(steps, 0, 6, after_save=True)
    for step in (5, 6):
        steps.saved(0, step, now=0.0)
        bring(steps, 0, step)
    assert [(s.step, s.after_save) for s in steps.describe(0.0)] == [(5, False), (6, True)]


def test_a_rank_that_exits_well_without_the_files_of_a_pending_save_costs_the_checkpoint() -> None:
    steps = staging()
    bring(steps, 0, 5)
    pend(steps, 1, 5)
    steps.exited_well(1)
    assert steps.lost() == [5]


def test_a_save_that_fails_costs_a_checkpoint_unless_that_is_over_or_whole() -> None:
    steps = staging()
    for step in (5, 6, 7):
        pend(steps, 1, step)
    bring(steps, 0, 6, whole=True)
    steps.commit(5)
    assert [steps.save_failed(1, step) for step in (5, 6, 7)] == [False, False, True]
