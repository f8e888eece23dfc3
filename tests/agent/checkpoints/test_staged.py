"""Which steps are staged on a worker, and how far each is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.checkpoints.steps_of import bring, staging


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
