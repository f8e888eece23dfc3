"""When a sweep ends, as what, and what it says then."""

from __future__ import annotations

import pytest

from tests.support.sweeps import (
    a_config,
    a_run,
    a_search,
    a_view,
    asked,
    begun,
    decided,
    reported,
    told,
)
from trainrun.sweep.records import Amend, End, Reports
from trainrun.sweep.view import fold


def test_a_target_reached_by_a_trial_that_then_diverged_counts_as_reported() -> None:
    """Edge case 45."""
    log = a_view(asked(0), asked(1), reported(0, s1=0.04, s2=float("nan")), told(0, "Diverged"))

    plan = decided(log, config=a_config(search=a_search(target=0.05)))

    assert plan.targets is not None
    assert plan.targets.end is not None
    assert plan.targets.end.reason == "TargetReached"
    assert plan.targets.end.message == (
        "trial 0 has reported loss 0.04 at step 1; the target is 0.05"
    )
    missed = decided(log, config=a_config(search=a_search(target=0.01)))
    assert missed.targets is not None
    assert missed.targets.end is None


def test_work_that_is_spent_ends_the_sweep_and_time_between_sessions_does_not_count() -> None:
    """Edge case 7."""
    log = a_view(asked(0), Reports(active=50.0), begun(uid="me", token=1), Reports(active=10.0))

    spent = decided(log, config=a_config(token=1, active_time=60.0))
    assert spent.targets is not None
    assert spent.targets.end is not None
    assert spent.targets.end == End(
        "Failed",
        "BudgetExhausted",
        "trials have worked for 60 s and budget.activeTime is 60 s; 0 of 4 trials have ended, 0 "
        "with a value. Open trials are saved: raise activeTime to continue",
    )

    left = decided(log, config=a_config(token=1, active_time=90.0))
    assert left.targets is not None
    assert left.targets.end is None
    assert left.wake_after == 30.0


@pytest.mark.case(
    "sweeps", "budget.activeTime is used up before a trial has a value", counted="the sweep fails"
)
def test_time_that_is_used_up_is_a_success_only_with_a_trial_that_has_ended_with_a_value() -> None:
    """A script could not tell a search that had found something from one that never got so far."""
    spent, config = Reports(active=60.0), a_config(active_time=60.0)
    for ends, verdict, counts in (
        ((told(0), told(1, "Errored")), "Succeeded", "2 of 4 trials have ended, 1 with a value"),
        ((told(0, "Stopped", value="0.5"),), "Succeeded", "1 of 4 trials have ended, 1 with"),
        ((told(0, "Stopped"),), "Failed", "1 of 4 trials have ended, 0 with a value"),
        ((told(0, "Diverged", value="nan"), told(1, "Errored")), "Failed", "2 of 4 trials"),
        ((reported(0, s1=0.5),), "Failed", "0 of 4 trials have ended, 0 with a value"),
    ):
        plan = decided(a_view(asked(0), asked(1), *ends, spent), config=config)
        assert plan.targets is not None
        assert plan.targets.end is not None
        assert (plan.targets.end.verdict, plan.targets.end.reason) == (verdict, "BudgetExhausted")
        assert counts in plan.targets.end.message


def test_a_trial_that_has_just_ended_counts_before_the_end_is_judged() -> None:
    log, config = a_view(asked(0), Reports(active=60.0)), a_config(active_time=60.0)
    plan = decided(log, a_run(0, "Succeeded"), config=config)
    assert plan.targets is not None
    assert [it.trial for it in plan.targets.ended] == [0]
    assert (plan.targets.end, plan.targets.asked, plan.verdict.reason) == (None, 1, "Ending")


def test_a_trial_that_ends_with_a_value_while_it_is_saved_makes_its_search_a_success() -> None:
    config = a_config(active_time=60.0)
    failed = End("Failed", "BudgetExhausted", "0 of 4 trials have ended")
    log = a_view(asked(0), Reports(active=60.0), failed, told(0))

    plan = decided(log, config=config)

    assert plan.targets is not None
    assert (plan.targets.amend, plan.over, plan.verdict.reason) == (4, False, "GoingOn")
    assert plan.verdict.message == (
        "resumed because a trial has ended with a value since; it had ended with: 0 of 4 "
        "trials have ended"
    )
    again = decided(fold([Amend(4)], log), config=config)
    assert again.targets is not None
    assert again.targets.end is not None
    assert again.targets.end.verdict == "Succeeded"


def test_a_search_whose_trials_were_all_stopped_has_a_result_where_one_has_a_value() -> None:
    log = a_view(asked(0), asked(1), told(0, "Stopped", value="0.5"), told(1, "Stopped"))
    plan = decided(log, config=a_config(trials=2))
    assert plan.targets is not None
    assert plan.targets.end == End(
        "Succeeded",
        "AllTrialsEnded",
        "all 2 trials have ended, 0 with success, 1 stopped with a value",
    )


def test_a_sweep_without_one_success_has_failed() -> None:
    """Edge case 22: all trials fail, and the failed count is not 0."""
    log = a_view(asked(0), told(0, "Errored"))

    plan = decided(log, config=a_config(trials=1))

    assert plan.targets is not None
    assert plan.targets.end is not None
    assert (plan.targets.end.verdict, plan.targets.end.reason) == ("Failed", "NoTrialSucceeded")
    message = "its only trial has ended, 0 with success; `trainrun explain` shows why"
    assert plan.targets.end.message == message


def test_failed_trials_within_the_limit_end_nothing_and_the_message_may_be_empty() -> None:
    log = a_view(asked(0), told(0, "Errored", reason="Hung"))

    assert decided(log, config=a_config(max_failed_trials=1)).verdict.reason == "TrialsAtWork"
    plan = decided(log, config=a_config(max_failed_trials=0))
    assert "trial 0: Hung. To continue, raise" in plan.verdict.message


def test_an_edit_that_raises_the_time_and_adds_a_target_ends_with_what_holds_now() -> None:
    """It ended with "activeTime is 6 s" where the file said 600 s."""
    end = End("Failed", "BudgetExhausted", "budget.activeTime is 6 s")
    log = a_view(asked(0), reported(0, s1=0.04), Reports(active=6.0), end)
    config = a_config(active_time=600.0, search=a_search(target=0.05))

    plan = decided(log, config=config)
    assert plan.targets is not None
    assert (plan.targets.amend, plan.verdict.reason) == (log.position, "GoingOn")

    again = decided(fold([Amend(log.position)], log), config=config)
    assert again.targets is not None
    assert again.targets.end is not None
    assert (again.targets.end.verdict, again.targets.end.reason) == ("Succeeded", "TargetReached")


def test_a_target_that_is_reached_while_trials_are_saved_changes_no_end() -> None:
    end = End("Failed", "BudgetExhausted", "spent")
    log = a_view(asked(0), Reports(active=6.0), end, reported(0, s1=0.04))

    plan = decided(log, config=a_config(active_time=6.0, search=a_search(target=0.05)))

    assert (plan.over, plan.verdict.reason) == (True, "BudgetExhausted")
