"""SIGTERM for scripts that do not ask should_save(): who gets it, and how its ends are taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run, seconds
from trainrun.contract.agent_state import ProcessExit
from trainrun.contract.answer import FolderRule, Hold, OnNotice
from trainrun_operator.core.run.boundary import DeleteWorker
from trainrun_operator.core.run.drain import still_flushing, to_flush

SENT = "its processes get SIGTERM and"


def held(scene: WorkerObservation, slot: int) -> Hold:
    order = scene.answer(slot).order
    assert isinstance(order, Hold)
    return order


def signalled(remaining: float | None = 40.0, **config: Any) -> WorkerObservation:
    """A gang that never asked, whose worker 1 got a notice, with the decision written."""
    scene = a_run(**{"max_preemptions": -1, **config}).running().noticed(1, remaining=remaining)
    if scene.plan.reason == "SaveAsked":
        scene = scene.after(scene.plan)
    return scene.after(scene.plan)


def ends(
    scene: WorkerObservation, slot: int, *, code: int | None = 0, signal: int | None = None
) -> WorkerObservation:
    """Its process ends after SIGTERM."""
    end = ProcessExit(rank=slot, code=code, signal=signal, ordered=True)
    return scene.with_agent(slot, phase="Idle", exits=(end,))


@pytest.mark.case(
    "nodes",
    "A worker gets a notice, and the script never asks should_save()",
    counted="maxPreemptions",
)
@pytest.mark.parametrize("on_notice", ["Auto", "Signal"])
def test_a_script_that_never_asked_gets_sigterm_on_all_workers_at_once(on_notice: OnNotice) -> None:
    scene = signalled(on_notice=on_notice)
    why = "the script never called trainrun.should_save()"
    why = why if on_notice == "Auto" else "checkpoint.onNotice is Signal"
    assert scene.status.incident is not None
    assert scene.status.incident.message == (
        f"worker run-1-1 is being taken away (spot); {why}: {SENT} 30 s to end"
    )
    assert [held(scene, slot).grace_seconds for slot in (0, 1)] == [30.0, 30.0]


def test_a_script_that_nobody_changes_is_not_told_to_call_should_save() -> None:
    scene = signalled(folder=FolderRule(path="out"))
    assert scene.status.incident is not None
    assert scene.status.incident.message == (
        f"worker run-1-1 is being taken away (spot); checkpoint.folder is set: {SENT} 30 s to end"
    )


def test_a_script_that_asked_in_this_attempt_gets_none() -> None:
    scene = a_run(max_failures=-1).running().voted(0, calls=1).noticed(1, remaining=40.0)
    scene = scene.after(scene.plan)
    assert scene.plan.reason == "Preempting"
    over = scene.noticed(1, remaining=0.0).after(passed=41)
    assert over.plan.message.endswith("no checkpoint came in time")
    assert held(over.after(over.plan), 0).grace_seconds == 0.0


def test_signal_is_for_a_script_that_asks_as_well() -> None:
    scene = a_run(on_notice="Signal").running().voted(0, calls=1).noticed(1, remaining=40.0)
    assert scene.plan.reason == "Preempted"
    assert SENT in scene.plan.message


def test_a_save_that_has_begun_is_carried_through_where_the_signal_is_wanted_since() -> None:
    scene = a_run(on_notice="Signal").running().voted(0, calls=3, committed=3)
    scene = scene.noticed(1, remaining=40.0)
    assert scene.plan.reason == "SaveAsked"


@pytest.mark.parametrize(
    ("on_notice", "why"),
    [
        ("AskScript", "the script never called trainrun.should_save()"),
        ("Stop", "checkpoint.onNotice is Stop"),
    ],
)
def test_no_script_gets_sigterm_where_that_is_not_wanted(on_notice: OnNotice, why: str) -> None:
    scene = signalled(on_notice=on_notice)
    assert scene.status.incident is not None
    assert scene.status.incident.message.endswith(f"(spot); {why}")
    assert held(scene, 0).grace_seconds == 0.0


def test_three_quarters_of_the_time_left_are_for_the_script_and_at_most_flush_timeout_is_not() -> (
    None
):
    assert held(signalled(remaining=40.0), 0).grace_seconds == 30.0
    assert held(signalled(remaining=200.0), 0).grace_seconds == 170.0
    assert held(signalled(remaining=None), 0).grace_seconds == 88.5  # of 118 since two seconds ago


def test_no_notice_gives_a_script_more_than_ten_minutes_or_the_grace_of_its_pods() -> None:
    assert held(signalled(remaining=7200.0), 0).grace_seconds == 600.0
    longer = signalled(remaining=7200.0, grace=seconds(1800))
    assert held(longer, 0).grace_seconds == 1800.0


def test_without_any_time_left_a_script_is_stopped() -> None:
    scene = signalled(remaining=0.0)
    assert scene.status.incident is not None
    assert scene.status.incident.message.endswith("the script never called trainrun.should_save()")
    assert held(scene, 0).grace_seconds == 0.0


def test_a_suspension_gives_the_grace_of_the_template() -> None:
    scene = a_run(on_notice="Signal", grace=seconds(90)).running().with_config(suspend=True)
    assert scene.plan.message == (f"suspending: checkpoint.onNotice is Signal: {SENT} 90 s to end")
    scene = scene.after(scene.plan)
    assert held(scene, 0).grace_seconds == 90.0
    assert scene.plan.message == "waiting for 2 workers to stop and to finish their uploads"
    assert held(scene.after(scene.plan, passed=91), 0).grace_seconds == 0.0


def test_a_rollout_gives_the_grace_of_the_template() -> None:
    scene = a_run(on_notice="Signal").running().with_config(template_hash="t2")
    assert scene.plan.message == (
        f"workers.template has changed: checkpoint.onNotice is Signal: {SENT} 30 s to end; "
        "all workers are recreated"
    )
    scene = scene.after(scene.plan)
    assert held(scene, 1).grace_seconds == 30.0
    assert not [action for action in scene.plan.actions if isinstance(action, DeleteWorker)]


def test_ranks_that_exit_with_0_after_the_signal_have_neither_finished_nor_failed() -> None:
    scene = ends(ends(signalled(), 0), 1)
    assert scene.plan.reason == "Gathering"
    assert scene.plan.message == "waiting for the worker of slot 1"
    assert scene.status.incident is not None
    assert (scene.status.incident.cause, scene.status.incident.budget) == (
        "Preempted",
        "preemptions",
    )


@pytest.mark.parametrize(("code", "signal"), [(143, None), (1, None), (None, 15), (None, 9)])
def test_however_ranks_end_after_the_signal_it_was_the_preemption(
    code: int | None, signal: int | None
) -> None:
    scene = ends(ends(signalled(), 0, code=code, signal=signal), 1, code=code, signal=signal)
    assert scene.plan.reason == "Gathering"


def test_a_rank_that_exited_with_0_after_the_signal_has_not_passed_the_steps_of_others() -> None:
    """Its part of that step may be missing: without it there is no checkpoint."""
    scene = ends(ends(signalled(), 0), 1).staged(0, 7).with_agent(1, steps=(6,))
    assert to_flush(scene.view) == ()


def test_a_training_that_was_done_when_it_was_decided_has_succeeded() -> None:
    scene = a_run().running().with_exit(0, code=0).with_exit(1, code=0).noticed(1)
    assert scene.plan.reason == "Succeeded"


def test_a_run_without_any_budget_left_fails_once_its_processes_have_ended() -> None:
    scene = signalled(max_failures=0, max_preemptions=0)
    assert (scene.plan.reason, scene.plan.message) == (
        "Stopping",
        "waiting for 2 workers to end after SIGTERM",
    )
    assert held(scene, 0).grace_seconds == 30.0
    assert ends(scene, 0).plan.message == "waiting for 1 worker to end after SIGTERM"
    assert ends(ends(scene, 0), 1).plan.reason == "MaxPreemptionsExceeded"
    assert scene.after(scene.plan, passed=31).plan.reason == "MaxPreemptionsExceeded"


def test_a_worker_that_is_gone_is_not_waited_for() -> None:
    scene = signalled(max_failures=0, max_preemptions=0)
    assert ends(scene, 0).without(1).plan.reason == "MaxPreemptionsExceeded"
    unheard = ends(scene, 0).unheard(1)
    assert unheard.plan.message == "waiting for 1 worker to end after SIGTERM"
    ended = ends(scene, 0).with_worker(1, phase="Ended")
    assert ended.plan.reason == "MaxPreemptionsExceeded"


def test_uploads_have_their_time_after_the_signals_grace() -> None:
    ending = signalled(remaining=200.0).status.ending
    assert ending is not None
    assert ending.grace_until == ending.time + seconds(170)
    assert ending.flush_until == ending.time + seconds(200)


def test_no_attempt_starts_while_a_clock_behind_ours_gives_processes_of_the_last_one_time() -> None:
    scene = a_run(on_notice="Signal").running().with_config(template_hash="t2")
    scene = scene.after(scene.plan)
    over = scene.after(scene.plan, passed=61)
    assert still_flushing(over.view) == over.workers
    assert still_flushing(ends(ends(over, 0), 1).view) == ()
    assert still_flushing(over.unheard(0).unheard(1).view) == ()
    assert still_flushing(scene.after(scene.plan, passed=361).view) == ()


def test_a_grace_that_a_clock_ahead_of_ours_has_written_is_over() -> None:
    scene = signalled()
    ending = scene.status.ending
    assert ending is not None
    ahead = replace(ending, grace_until=ending.time + seconds(36_000))
    assert held(scene.with_status(ending=ahead), 0).grace_seconds == 0.0
