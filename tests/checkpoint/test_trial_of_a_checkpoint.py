"""An attempt that tries to do without the newest checkpoint, with which others have died."""

from __future__ import annotations

import pytest

from tests.support.checkpoints import Bench, checkpoint_id
from trainrun.checkpoint.inspection import list_checkpoints, next_resolution, verify
from trainrun.checkpoint.records import AttemptRecord
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.writer import check_fence, set_aside
from trainrun.errors import CheckpointFenced

NEWEST, BEFORE = checkpoint_id(1, 10), checkpoint_id(1, 5)


@pytest.fixture
def tried(any_bench: Bench) -> Bench:
    """Attempts 2 and 3 have died of step 10; attempt 4 tries step 5."""
    any_bench.resolve(1)
    any_bench.commit(step=5)
    any_bench.commit(step=10)
    any_bench.resolve(2)
    any_bench.resolve(3)
    answer = any_bench.resolve(4, trial_of=NEWEST)
    assert (answer.outcome, answer.resume, answer.trial_of) == ("Resolved", BEFORE, NEWEST)
    return any_bench


def states(bench: Bench) -> dict[tuple[int, int], str]:
    return {
        (info.id.attempt, info.id.step): f"{info.state} {info.reason}".strip()
        for info in list_checkpoints(bench.run)
    }


def test_the_claim_says_what_it_is_a_trial_of_and_stands(tried: Bench) -> None:
    record = tried.run.read(AttemptRecord, "attempts/000004.json")
    assert (record.resume, record.trial_of) == (BEFORE, NEWEST)
    again = tried.resolve(4)  # of an operator that knows nothing of it any more
    assert (again.resume, again.trial_of) == (BEFORE, NEWEST)


def test_a_trial_that_comes_to_nothing_costs_nothing(tried: Bench) -> None:
    assert states(tried) == {(1, 5): "good", (1, 10): "good"}
    assert next_resolution(tried.run).resume == NEWEST
    assert retain(tried.run, attempt=4, keep=2) == ()
    answer = tried.resolve(5)
    assert (answer.resume, answer.trial_of) == (NEWEST, None)
    assert states(tried) == {(1, 5): "good", (1, 10): "good"}


@pytest.mark.case(
    "storage",
    "Two attempts in a row die while they open the same good checkpoint",
    counted="its cause",
)
def test_a_trial_that_commits_leaves_the_newer_one_behind(tried: Bench) -> None:
    tried.commit(attempt=4, step=7)
    check_fence(tried.run, checkpoint_id(4, 7))
    fenced = "fenced attempt 4 started from something older"
    assert states(tried) == {(1, 5): "good", (1, 10): fenced, (4, 7): "good"}
    assert verify(tried.run, NEWEST).state == "fenced"
    assert next_resolution(tried.run).resume == checkpoint_id(4, 7)
    assert retain(tried.run, attempt=4, keep=2) == ()  # attempt 3 was handed it
    assert tried.resolve(5, trial_of=NEWEST).resume == checkpoint_id(4, 7)  # a late order
    assert retain(tried.run, attempt=5, keep=2) == (NEWEST,)


def test_parts_that_a_trial_never_commits_leave_nothing_behind(tried: Bench) -> None:
    tried.part(attempt=4, step=7, worker=0, workers=2, files={0: {"model.pt": b"7"}})
    assert states(tried)[1, 10] == "good"
    assert next_resolution(tried.run).resume == NEWEST


def test_what_a_trial_has_committed_counts_after_its_deletion(tried: Bench) -> None:
    committed = tried.commit(attempt=4, step=7).id
    tried.resolve(5)
    folder = f"checkpoints/{committed.name}/"
    tried.run.delete([item.key for item in tried.run.objects(folder)])
    assert states(tried)[1, 10] == "fenced attempt 4 started from something older"


def test_what_a_trial_was_started_from_is_kept_during_the_attempt_after_it(tried: Bench) -> None:
    tried.resolve(5)
    for step in (15, 20):
        tried.commit(attempt=5, step=step)
    assert retain(tried.run, attempt=5, keep=2) == ()


def test_what_a_trial_commits_late_is_left_behind_by_the_attempt_after_it(tried: Bench) -> None:
    tried.resolve(5)
    tried.commit(attempt=4, step=7)
    with pytest.raises(CheckpointFenced):
        check_fence(tried.run, checkpoint_id(4, 7))
    assert next_resolution(tried.run).resume == NEWEST


def test_a_late_commit_of_an_attempt_before_the_trial_is_left_behind_by_it(tried: Bench) -> None:
    tried.commit(attempt=3, step=12)
    assert states(tried)[3, 12] == "fenced attempt 4 started from something older"
    assert next_resolution(tried.run).resume == NEWEST


@pytest.mark.parametrize("keep", [2, 3])
def test_what_a_trial_runs_from_is_kept_whatever_lies_between(any_bench: Bench, keep: int) -> None:
    any_bench.resolve(1)
    for step in (5, 6, 7, 10):
        any_bench.commit(step=step)
    for step in (6, 7):
        set_aside(any_bench.run, checkpoint_id(1, step), "by hand")
    assert any_bench.resolve(2, trial_of=NEWEST).resume == BEFORE
    retain(any_bench.run, attempt=2, keep=keep)
    kept = {key for key, state in states(any_bench).items() if state.startswith("good")}
    assert kept == {(1, 5), (1, 10)}


def test_a_trial_needs_an_older_checkpoint(any_bench: Bench) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=10)
    answer = any_bench.resolve(2, trial_of=NEWEST)
    assert (answer.resume, answer.trial_of) == (NEWEST, None)


def test_a_trial_of_what_is_not_the_newest_any_more_is_none(any_bench: Bench) -> None:
    any_bench.resolve(1)
    for step in (5, 10, 15):
        any_bench.commit(step=step)
    answer = any_bench.resolve(2, trial_of=NEWEST)
    assert (answer.resume, answer.trial_of) == (checkpoint_id(1, 15), None)


def test_parts_without_a_manifest_that_are_older_are_not_completed_for_a_trial(
    any_bench: Bench,
) -> None:
    any_bench.resolve(1)
    any_bench.commit(step=5)
    any_bench.part(step=7, files={0: {"model.pt": b"7"}})
    any_bench.commit(step=10)
    assert any_bench.resolve(2, trial_of=NEWEST).resume == BEFORE
