"""decide_sweep, rule by rule."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from tests.support.sweeps import (
    SPEC,
    a_config,
    a_run,
    a_view,
    asked,
    begun,
    decided,
    told,
)
from trainrun.sweep.records import Amend, End, Record
from trainrun.sweep.view import SweepView, fold
from trainrun_operator.core.sweep.boundary import (
    ClerkUnknown,
    CreateTrial,
    DeleteTrial,
    SuspendTrial,
    SweepObservation,
    TrialRun,
)
from trainrun_operator.core.sweep.config import folder_name
from trainrun_operator.core.sweep.planner import decide_sweep

# 1: nobody is disturbed because the clerk is not heard


def test_while_the_log_is_not_known_every_run_is_kept_as_it_is() -> None:
    unknown = ClerkUnknown(message="the store is away")
    observation = SweepObservation(log=unknown, runs=(a_run(0), a_run(1, "Failed")))

    plan = decide_sweep(observation, a_config(), name="s")

    assert (plan.actions, plan.targets) == ((), None)
    assert (plan.verdict.reason, plan.verdict.message) == ("ClerkNotHeard", "the store is away")
    assert plan.wake_after == 5


def test_a_log_older_than_what_was_acted_on_decides_nothing() -> None:
    plan = decided(a_view(asked(0)), acted_on=3)

    assert (plan.actions, plan.targets) == ((), None)
    assert plan.verdict.message == (
        "the operator acted on record 3 of the log, but only 2 are known. If this persists, newer "
        "records are lost: put them back, or delete the TrainSweep and apply it again, which "
        "continues from record 2"
    )


# 2: another search, or another leader


def test_a_changed_choice_list_is_refused_and_named() -> None:
    """Edge case 35."""
    other = SPEC.replace('"space": []', '"space": [{"choice": [1]}]')
    theirs = SPEC.replace('"space": []', '"space": [{"choice": [2]}]')

    plan = decided(fold([begun(uid="old", spec=theirs)]), config=a_config(immutable=other))

    assert (plan.verdict.phase, plan.verdict.reason) == ("Failed", "SpecChanged")
    assert "with another space[0].choice[0], so its trials" in plan.verdict.message
    assert (plan.targets, plan.over) == (None, True)


def test_a_list_of_another_length_and_a_new_field_are_named_as_a_whole() -> None:
    longer = SPEC.replace('"space": []', '"space": [1]').replace(
        '"fixed": {}', '"fixed": {"epochs": 1}'
    )

    plan = decided(fold([begun(uid="old")]), config=a_config(immutable=longer))

    assert "another space, fixed.epochs, so its trials" in plan.verdict.message


def test_a_space_that_was_changed_between_two_runs_of_the_same_sweep_is_refused() -> None:
    """It was looked at before the first session only: a file that was edited after a kill went on
    with the other space, and one whose search was over said so of another objective."""
    other = a_config(immutable=SPEC.replace('"space": []', '"space": [1]'))
    over = End("Succeeded", "AllTrialsEnded", "all 1 trials have ended")

    for log in (a_view(asked(0)), a_view(asked(0), told(0), over)):
        plan = decided(log, config=other)

        assert (plan.verdict.phase, plan.verdict.reason) == ("Failed", "SpecChanged")
        assert "with another space, so its trials" in plan.verdict.message
        assert (plan.targets, plan.over) == (None, True)


def test_trials_at_work_are_saved_when_their_search_is_changed() -> None:
    other = a_config(immutable=SPEC.replace('"space": []', '"space": [1]'))

    plan = decided(a_view(asked(0)), a_run(0), config=other)

    assert (plan.verdict.phase, plan.verdict.reason) == ("Running", "SpecChanged")
    assert [it.name for it in plan.actions] == [a_run(0).name]
    assert (plan.targets, plan.over) == (None, False)


def test_a_sweep_of_which_all_that_is_left_is_paused_says_what_it_waits_for() -> None:
    config = a_config(trials=2, paused=frozenset({1}))
    log = a_view(asked(0), asked(1), told(0))

    plan = decided(log, config=config)

    assert (plan.verdict.phase, plan.verdict.reason) == ("Running", "AllPaused")
    assert plan.verdict.message == ("all remaining trials are paused: spec.pausedTrials names 1")
    assert decided(log, a_run(1), config=config).verdict.reason == "TrialsAtWork"
    more = decided(log, config=a_config(trials=3, paused=frozenset({1})))
    assert more.verdict.reason == "TrialsAtWork"


def test_why_a_trial_has_errored_is_cut_where_a_reader_sees_it() -> None:
    log = a_view(asked(0), told(0, state="Errored", reason="AppError", message="x" * 300))

    message = decided(log, config=a_config(max_failed_trials=0)).targets.end.message

    assert f"trial 0: AppError ({'x' * 197}…). To continue, raise maxFailedTrials" in message


def test_an_existing_log_fails_where_the_user_wants_that_and_not_after_our_own_session() -> None:
    config = a_config(fail_on_existing=True)
    existing = fold([begun(uid="old"), asked(0)])

    plan = decided(existing, config=config)
    assert (plan.verdict.phase, plan.verdict.reason) == ("Failed", "AlreadyExists")
    assert "already holds a search of 1 trials and onExisting is Fail" in plan.verdict.message

    again = decided(a_view(asked(0)), config=replace(config, token=1))
    assert again.verdict.reason == "TakingUp"


def test_storage_that_somebody_uses_is_waited_for() -> None:
    plan = decided(SweepView(), in_use="s3://b/s is in use by TrainSweep uid you")

    assert (plan.verdict.reason, plan.targets) == ("StorageInUse", None)
    assert plan.verdict.message == "s3://b/s is in use by TrainSweep uid you"


@pytest.mark.case("sweeps", "Another machine takes the search over")
def test_a_sweep_that_was_taken_over_saves_its_runs_and_says_by_whom() -> None:
    log = a_view(asked(0), begun(uid="new"))

    plan = decided(log, a_run(0), a_run(1, suspend=True, phase="Suspended"))

    assert (plan.verdict.phase, plan.verdict.reason) == ("Running", "TakenOver")
    assert plan.verdict.message.startswith("TrainSweep uid new continues this search")
    assert plan.actions == (SuspendTrial(name="s-00000", uid="uid-s-00000", suspend=True),)
    assert not plan.over
    saved = decided(log, a_run(0, "Suspended", suspend=True))
    assert (saved.verdict.phase, saved.verdict.reason, saved.over) == ("Failed", "TakenOver", True)


def test_a_spec_behind_its_own_newest_token_does_nothing() -> None:
    plan = decided(a_view(begun(token=1)), a_run(0))

    assert (plan.verdict.reason, plan.actions, plan.guarded) == ("SpecBehind", (), False)
    assert plan.verdict.message == "the log has resume.token 1, newer than 0 in the spec"


# 3: a session comes before everything else


def test_a_session_is_ordered_first_and_nothing_with_it() -> None:
    config = a_config(resume_errored=True, token=2)
    log = a_view(asked(0))

    plan = decided(log, a_run(0, "Failed"), config=config)

    assert plan.actions == ()
    assert plan.targets is not None
    assert plan.targets.session == begun(resume_errored=True, token=2)
    assert (plan.targets.after, plan.guarded) == (1, True)
    assert (plan.targets.ended, plan.targets.asked) == ((), 0)
    assert plan.verdict.message == "resuming the sweep"
    assert decided(SweepView()).verdict.message == "starting the log"


# 4, 5: ends are told, then runs are deleted


def test_the_end_of_a_run_is_ordered_and_the_run_is_kept_until_the_log_has_it() -> None:
    run = a_run(0, "Failed", reason="OutOfMemory", message="killed", restarts=2, attempt=3)

    plan = decided(a_view(asked(0)), run)

    assert plan.targets is not None
    (end,) = plan.targets.ended
    assert (end.trial, end.opening, end.succeeded, end.reason) == (0, 1, False, "OutOfMemory")
    assert (end.restarts, end.attempt) == (2, 3)
    assert not [it for it in plan.actions if isinstance(it, DeleteTrial)]


def test_a_trial_object_deleted_by_hand_comes_back() -> None:
    """Edge case 19."""
    view = a_view(asked(0))

    assert decided(view).actions[0] == CreateTrial(name="s-00000", trial=view.trials[0])


def test_runs_of_closed_trials_are_deleted_but_for_the_newest_failed_ones() -> None:
    log = a_view(*map(asked, range(4)), told(0), *(told(it, "Errored") for it in (1, 2, 3)))
    runs = [a_run(0, "Succeeded"), *(a_run(it, "Failed", created=it) for it in (1, 2, 3))]

    plan = decided(log, *runs, config=a_config(failed_runs=2))

    deleted = [it.name for it in plan.actions if isinstance(it, DeleteTrial)]
    assert deleted == ["s-00000", "s-00001"]


def test_runs_that_the_view_does_not_know_yet_are_kept() -> None:
    log = a_view(asked(0))

    plan = decided(log, a_run(0, opening=2), a_run(7))

    assert not [it for it in plan.actions if isinstance(it, DeleteTrial)]


def test_the_run_of_an_older_opening_is_deleted() -> None:
    log = a_view(asked(0), told(0, "Errored"), begun(token=1, resume_errored=True))

    plan = decided(log, a_run(0), config=a_config(token=1, failed_runs=0))

    assert DeleteTrial(name="s-00000", uid="uid-s-00000") in plan.actions
    assert [it.name for it in plan.actions if isinstance(it, CreateTrial)] == ["s-00000-o2"]


# 6: the end


def test_trials_are_saved_only_once_the_end_stands_in_the_log() -> None:
    """Edge case 20: trials run on after the experiment failed."""
    log = a_view(asked(0), asked(1), told(0, "Errored", message="no\ndata"))
    config = a_config(max_failed_trials=0)

    plan = decided(log, a_run(1), config=config)
    assert plan.targets is not None
    end = plan.targets.end
    assert end is not None
    assert (end.verdict, end.reason) == ("Failed", "TooManyFailedTrials")
    assert "trial 0: Ended (no). To continue, raise maxFailedTrials, or" in end.message
    assert plan.actions == ()

    ended = fold([end], log)
    plan = decided(ended, a_run(1), config=config)
    assert plan.actions == (SuspendTrial(name="s-00001", uid="uid-s-00001", suspend=True),)
    assert ended.trials[1].open


def test_a_sweep_is_not_said_to_be_over_before_its_open_trials_are_saved() -> None:
    """An operator that comes after it would leave a sweep alone that is over, and what works."""
    log = a_view(asked(0), End("Failed", "BudgetExhausted", "x"))
    config = a_config(max_failed_trials=0, active_time=0.0)

    ending = decided(log, a_run(0), config=config)
    assert (ending.verdict.phase, ending.verdict.reason, ending.over) == (
        "Running",
        "Ending",
        False,
    )
    saved = decided(log, a_run(0, "Suspended", suspend=True), config=config)
    verdict = saved.verdict
    assert (verdict.phase, verdict.reason, saved.over) == ("Failed", "BudgetExhausted", True)


@pytest.mark.case(
    "sweeps", "A trial has more failures than its budget allows", counted="maxFailedTrials"
)
def test_a_sweep_that_has_failed_by_its_errored_trials_goes_on_with_all_others() -> None:
    """Edge case 8."""
    failed = a_view(
        *(asked(0), asked(1), told(0, "Errored")), End("Failed", "TooManyFailedTrials", "too many")
    )
    saved, strict = a_run(1, "Suspended", suspend=True), a_config(max_failed_trials=0)
    assert decided(failed, saved, config=strict).over

    raised = decided(failed, saved, config=replace(strict, max_failed_trials=1))
    assert raised.targets is not None
    assert (raised.targets.amend, raised.over) == (failed.position, False)
    again = fold((Amend(failed.position),), failed)
    plan = decided(again, saved, config=replace(strict, max_failed_trials=1))
    assert SuspendTrial(name="s-00001", uid="uid-s-00001", suspend=False) in plan.actions

    resumed = fold((begun(token=1, resume_errored=True),), failed)
    plan = decided(resumed, saved, config=replace(strict, token=1, resume_errored=True))
    assert [it.name for it in plan.actions if isinstance(it, CreateTrial)] == ["s-00000-o2"]


def test_of_many_trials_all_are_tried_and_never_more_at_once_than_may() -> None:
    """Edge case 18."""
    config = a_config(trials=400, max_concurrent=50, max_unplaced=50)
    log, runs, most = a_view(), dict[int, TrialRun](), 0
    for _ in range(400 // 50 * 3):
        plan = decided(log, *runs.values(), config=config)
        assert plan.targets is not None
        for action in plan.actions:
            if isinstance(action, CreateTrial):
                runs[action.trial.number] = a_run(action.trial.number)
            elif isinstance(action, DeleteTrial):
                runs = {n: run for n, run in runs.items() if run.name != action.name}
        most = max(most, sum(run.live for run in runs.values()))
        if all(run.live for run in runs.values()):
            records: list[Record] = [asked(n) for n in range(log.asked, plan.targets.asked)]
            if not records:  # all slots are taken: those at work end
                runs = {n: replace(run, phase="Succeeded") for n, run in runs.items()}
        else:
            records = [told(it.trial) for it in plan.targets.ended]
        log = fold(records, log)
    assert (log.asked, log.count("Succeeded"), most) == (400, 400, 50)


def test_a_trial_that_was_restarted_forty_times_goes_on_while_its_run_does() -> None:
    """Edge case 39: how many preemptions it survives is for its run to say."""
    log = a_view(asked(0))
    assert decided(log, a_run(0, restarts=40)).actions == ()

    message = "preempted; spec.failurePolicy.maxPreemptions is 40"
    reason = "MaxPreemptionsExceeded"
    plan = decided(log, a_run(0, "Failed", restarts=40, reason=reason, message=message))
    assert plan.targets is not None
    (end,) = plan.targets.ended
    assert (end.reason, end.restarts) == (reason, 40)
    assert end.message == "preempted; spec.run.failurePolicy.maxPreemptions is 40"


def test_more_trials_after_the_end() -> None:
    """Edge case 9: a larger budget lets an ended sweep go on."""
    log = a_view(asked(0), told(0), End("Succeeded", "AllTrialsEnded", "done"))

    ended = decided(log, config=a_config(trials=1))
    assert ended.over
    more = decided(log, config=a_config(trials=2))
    assert more.targets is not None
    assert more.targets.amend == 4
    assert (more.verdict.phase, more.verdict.reason) == ("Running", "GoingOn")
    assert more.verdict.message.endswith("it had ended with: done")
    again = decided(fold([Amend(4)], log), config=a_config(trials=2))
    assert again.targets is not None
    assert again.targets.asked == 2


def test_flags_for_errored_trials_without_a_new_token_are_said_to_wait_for_one() -> None:
    """resumeErrored: true did nothing, and nothing was said."""
    log = a_view(asked(0), told(0, "Errored"), End("Failed", "NoTrialSucceeded", "none"))
    for config, said in (
        (a_config(trials=1), ""),
        (
            a_config(trials=1, resume_errored=True),
            "; resume.resumeErrored is true: add 1 to resume.token to retry errored trials (1)",
        ),
        (
            a_config(trials=1, restart_errored=True),
            "; resume.restartErrored is true: add 1 to resume.token to retry errored trials (1)",
        ),
    ):
        assert decided(log, config=config).verdict.message == f"none{said}"
    at_work = decided(a_view(asked(0), told(0, "Errored")), config=a_config(resume_errored=True))
    assert at_work.verdict.message.endswith("to retry errored trials (1)")
    heeded = a_view(begun(uid="me", token=1, resume_errored=True), asked(0), told(0, "Errored"))
    config = a_config(token=1, resume_errored=True)
    assert "resumeErrored" not in decided(heeded, config=config).verdict.message
    none = a_view(asked(0))
    assert "token" not in decided(none, config=a_config(resume_errored=True)).verdict.message


# 7: suspended, paused, stopped


def test_a_suspended_sweep_saves_its_trials_and_waits() -> None:
    log, config = a_view(asked(0)), a_config(suspend=True)

    saving = decided(log, a_run(0), config=config)
    assert saving.actions == (SuspendTrial(name="s-00000", uid="uid-s-00000", suspend=True),)
    assert (saving.verdict.phase, saving.verdict.message) == (
        "Running",
        "spec.suspend is true; trials are being saved",
    )
    saved = decided(log, a_run(0, "Suspended", suspend=True), config=config)
    assert (saved.actions, saved.verdict.phase) == ((), "Suspended")
    assert saved.targets is not None
    assert saved.targets.asked == 1


def test_pause_without_losing_trials() -> None:
    """Edge case 26: a paused trial is saved, another takes its slot, and it comes back last."""
    log = a_view(asked(0), asked(1), asked(2))
    config = a_config(paused=frozenset({0}))

    paused = decided(log, a_run(0), a_run(1), config=config)
    assert paused.actions == (SuspendTrial(name="s-00000", uid="uid-s-00000", suspend=True),)

    released = decided(log, a_run(0, "Suspended", suspend=True), a_run(1))
    assert [it.name for it in released.actions if isinstance(it, CreateTrial)] == ["s-00002"]
    last = decided(
        log, a_run(0, "Suspended", suspend=True), a_run(1), config=a_config(max_concurrent=3)
    )
    assert last.actions[-1] == SuspendTrial(name="s-00000", uid="uid-s-00000", suspend=False)


def test_trials_that_the_user_stops_are_ordered_to_end_and_unknown_numbers_are_not() -> None:
    plan = decided(a_view(asked(0)), a_run(0), config=a_config(stopped=frozenset({0, 9})))

    assert plan.targets is not None
    assert plan.targets.stopped == (0,)


# 9, 10: slots


def test_parameters_are_asked_for_only_where_slots_are_left() -> None:
    one = decided(a_view(asked(0)), a_run(0))
    assert one.targets is not None
    assert one.targets.asked == 2
    full = decided(a_view(asked(0), asked(1)), a_run(0), a_run(1))
    assert full.targets is not None
    assert full.targets.asked == 2


def test_no_trial_too_many_after_resume() -> None:
    """Edge case 4."""
    log = a_view(*map(asked, range(4)), told(0), told(1))

    plan = decided(log)

    assert [it.name for it in plan.actions if isinstance(it, CreateTrial)] == ["s-00002", "s-00003"]
    assert plan.targets is not None
    assert plan.targets.asked == 4


def test_reopened_trials_obey_max_concurrent() -> None:
    """Edge case 5."""
    records = [asked(0), asked(1), asked(2), *(told(it, "Errored") for it in range(3))]
    log = a_view(*records, begun(token=1, restart_errored=True))

    plan = decided(log, config=a_config(token=1))

    made = [it for it in plan.actions if isinstance(it, CreateTrial)]
    assert [(it.name, folder_name(it.trial)) for it in made] == [
        ("s-00000-o2", "00000-i2"),
        ("s-00001-o2", "00001-i2"),
    ]


def test_a_lowered_max_concurrent_ends_no_run() -> None:
    """Edge case 40."""
    log = a_view(*map(asked, range(3)))

    plan = decided(log, *map(a_run, range(3)), config=a_config(max_concurrent=1))

    assert plan.actions == ()


def test_gangs_of_trials_do_not_starve_each_other() -> None:
    """Edge case 16."""
    log = a_view(*map(asked, range(3)))
    config = a_config(max_concurrent=3, max_unplaced=1)

    plan = decided(log, a_run(0, "Waiting"), config=config)

    assert plan.actions == ()
    assert plan.verdict.reason == "WaitingForRoom"
    assert plan.verdict.message == (
        "1 trials at work, 3 of 4 have parameters; the next ones wait until 1 have found room"
    )
    placed = decided(log, a_run(0), config=config)
    assert [it.name for it in placed.actions if isinstance(it, CreateTrial)] == ["s-00001"]


def test_a_trial_that_is_still_being_saved_keeps_its_slot() -> None:
    log = a_view(asked(0), asked(1))
    config = a_config(max_concurrent=1, paused=frozenset({0}))

    plan = decided(log, a_run(0, suspend=True), config=config)

    assert plan.actions == ()


def test_a_lowered_number_of_trials_asks_no_more_and_lets_the_open_ones_end() -> None:
    plan = decided(a_view(*map(asked, range(3))), a_run(0), config=a_config(trials=1))

    assert plan.targets is not None
    assert plan.targets.asked == 1
    assert plan.targets.end is None


def test_the_order_of_the_runs_changes_nothing() -> None:
    log = a_view(*map(asked, range(4)), told(0), told(1, "Errored"))
    runs = [a_run(0, "Succeeded"), a_run(1, "Failed"), a_run(2, "Failed"), a_run(3)]

    plans = {repr(decided(log, *some)) for some in permutations(runs)}

    assert len(plans) == 1


def test_a_token_that_was_skipped_does_not_take_the_sweep_back() -> None:
    plan = decided(a_view(begun(token=3)), config=a_config(token=2))

    assert (plan.verdict.reason, plan.targets) == ("SpecBehind", None)


def test_only_what_acts_or_takes_up_is_guarded() -> None:
    full = decided(a_view(asked(0), asked(1)), a_run(0), a_run(1))

    assert not full.guarded
    assert decided(a_view(asked(0))).guarded


def test_a_sweep_is_not_over_before_the_end_of_each_run_is_told() -> None:
    """Else a trial that has ended with the budget would be shown as open for ever."""
    log = a_view(asked(0), End("Failed", "BudgetExhausted", "spent"))
    config = a_config(active_time=0.0)

    plan = decided(log, a_run(0, "Succeeded"), config=config)

    assert plan.targets is not None
    assert [it.trial for it in plan.targets.ended] == [0]
    assert (plan.actions, plan.over, plan.verdict.reason) == ((), False, "Ending")


def test_a_sweep_is_not_over_before_the_checkpoints_that_nobody_needs_are_deleted() -> None:
    log = a_view(
        *(asked(it) for it in range(3)),
        *(told(it) for it in range(3)),
        End("Succeeded", "AllTrialsEnded", "done"),
    )
    config = a_config(trials=3, best_checkpoints=1)

    ending = decided(log, config=config)
    assert ending.targets is not None
    assert (ending.targets.cleared, ending.over) == ((1, 2), False)
    half = replace(ending.targets, cleared=(1,))
    assert not decided(log, config=config, carried_out=half).over
    assert decided(log, config=config, carried_out=ending.targets).over


def test_one_paused_trial_after_the_other_is_let_go_on_where_few_may_wait_for_room() -> None:
    """Edge case 16: else all gangs would be let go on at once, and starve each other."""
    log = a_view(asked(0), asked(1), asked(2))
    config = a_config(trials=3, max_concurrent=3, max_unplaced=1)
    paused = [a_run(it, "Suspended", suspend=True) for it in range(3)]

    first = decided(log, *paused, config=config)
    assert [it.name for it in first.actions] == ["s-00000"]
    going = a_run(0, "Suspended", suspend=False)
    assert decided(log, going, *paused[1:], config=config).actions == ()
    running = a_run(0, "Running")
    again = decided(log, running, *paused[1:], config=config)
    assert [it.name for it in again.actions] == ["s-00001"]
