"""Who is told to keep a checkpoint waiting, and when."""

from __future__ import annotations

import pytest

from tests.agent.checkpoints.steps_of import bring, staging
from trainrun.agent.checkpoints.overdue import overdue_checkpoint
from trainrun.contract.messages import Report


def test_a_silent_rank_is_named_with_step_and_remedy() -> None:
    steps = staging()
    bring(steps, 0, 40)
    assert overdue_checkpoint(steps, (0, 1), 29.0, 30.0) is None
    problem = overdue_checkpoint(steps, (0, 1), 31.0, 30.0)
    assert problem is not None
    assert problem.type == "CheckpointWaiting"
    assert problem.message == (
        "the checkpoint of step 40 is waiting: rank 0 brought checkpoint files more than 30 s ago, "
        "but rank 1 has not reported this step or a later one. Call trainrun.report(step=40) on "
        "every rank, or report(..., whole=True) on the rank that saves everything"
    )


@pytest.mark.case("script", "A rank reports a step without files and nothing more")
def test_a_rank_whose_files_may_still_follow_is_named_with_what_it_can_do() -> None:
    steps = staging()
    bring(steps, 0, 40)
    steps.reports(1, 40)
    problem = overdue_checkpoint(steps, (0, 1), 31.0, 30.0)
    assert problem is not None
    assert problem.type == "CheckpointWaiting"
    assert problem.message == (
        "the checkpoint of step 40 is waiting: rank 0 brought checkpoint files more than 30 s ago, "
        "but rank 1 has reported the step without files and nothing since, so files may follow. "
        "Report the next step, pass checkpoint=None if there are no files, or call report(..., "
        "whole=True) on the rank that saves everything"
    )


def test_ranks_that_wait_for_another_worker_are_named_too() -> None:
    steps = staging(2, 3)
    steps.open([40], 0.0)
    problem = overdue_checkpoint(steps, (2, 3), 31.0, 30.0)
    assert problem is not None
    assert problem.message.startswith(
        "the checkpoint of step 40 is waiting: another worker brought"
    )
    assert "but ranks 2, 3 have not reported this step" in problem.message


def test_a_rank_that_has_died_is_not_blamed_for_silence() -> None:
    steps = staging()
    bring(steps, 0, 40)
    assert overdue_checkpoint(steps, (0,), 31.0, 30.0) is None


def test_nobody_is_silent_while_a_rank_still_saves() -> None:
    steps = staging()
    steps.pend(0, Report(step=40, pending=True), after_save=False, now=0.0)
    assert overdue_checkpoint(steps, (0, 1), 100.0, 30.0) is None
    steps.saved(0, 40, now=100.0)
    bring(steps, 0, 40)
    assert overdue_checkpoint(steps, (0, 1), 129.0, 30.0) is None
    problem = overdue_checkpoint(steps, (0, 1), 131.0, 30.0)
    assert problem is not None
    assert "but rank 1 has not reported this step" in problem.message
