"""A checkpoint before workers are taken away: notice, suspend, template edit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import (
    WorkerObservation,
    a_run,
    a_worker,
    an_agent,
    an_incident,
    seconds,
)
from trainrun.contract.agent_state import Notice, Problem
from trainrun.contract.answer import Exit, Hold, SaveOrder
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import DeleteWorker


def saved(scene: WorkerObservation, step: int = 12, call: int = 12) -> WorkerObservation:
    """Everybody committed the call and staged what was asked for."""
    for slot in range(scene.config.replicas):
        scene = scene.voted(slot, calls=call, committed=call)
    return scene.staged_by_all(step, after_save=True)


def suspended(scene: WorkerObservation) -> WorkerObservation:
    scene = scene.with_config(suspend=True)
    return scene.after(scene.plan)


# ---------------------------------------------------------------------------- asking


@pytest.mark.case(
    "nodes", "A worker gets a notice (SIGTERM, eviction, reclaim)", counted="maxPreemptions"
)
def test_a_notice_makes_the_run_ask_for_a_checkpoint() -> None:
    plan = a_run().running().noticed(1).plan
    reason = "worker of slot 1 will be taken away (spot)"
    assert (plan.reason, plan.message) == (
        "SaveAsked",
        f"asking the training for a checkpoint: {reason}",
    )
    assert (plan.status.phase, plan.status.ending) == ("Preempting", None)
    asked = plan.status.save_asked
    assert asked is not None
    assert (asked.attempt, asked.reason) == (1, reason)


def test_a_notice_known_to_the_world_alone_counts_as_well() -> None:
    scene = a_run().running().noticed(1)
    agent = scene.worker(1).agent
    assert agent is not None
    world = scene.with_agent(1, notice=None).with_worker(1, notice=agent.notice)
    assert world.plan.reason == "SaveAsked"


def test_a_worker_that_vanishes_after_its_notice_was_preempted() -> None:
    """An evicted pod's object may be gone before anybody saw it end."""
    scene = a_run(max_preemptions=-1).running().noticed(1)
    scene = scene.after(scene.plan).without(1)
    assert scene.plan.message == (
        "attempt 1 ended: Preempted: worker run-1-1 was taken away after a notice"
    )
    other = a_run().running().noticed(1)
    other = other.after(other.plan).without(0)
    assert other.plan.message.endswith("worker run-0-1 was deleted or replaced from outside")


MISSED = (
    "; should_save() was not called in the 15 s since the notice (worker run-1-1), so no "
    "checkpoint was saved: call it in evaluation loops and before long work, too, or raise "
    "terminationGracePeriodSeconds"
)


def evaluating(scene: WorkerObservation, *, calls: int = 11) -> WorkerObservation:
    """Slot 0 waits in the call agreed on; slot 1 has asked before the notice, and not since."""
    scene = scene.asked_to_save(ago=15, leaving=(1,)).voted(0, calls=12, prepared=12)
    return scene.voted(1, calls=calls, prepared=12)


@pytest.mark.parametrize("agreed", [{"prepared": 12}, {"committed": 12}], ids=str)
def test_nobody_said_that_the_script_did_not_ask_during_the_whole_grace(
    agreed: dict[str, int],
) -> None:
    scene = evaluating(a_run(max_preemptions=-1).running().noticed(1))
    scene = scene.voted(1, calls=11, **agreed)
    said = scene.worker(1).agent
    assert said is not None
    assert replace(scene, last_words=(said,)).without(1).plan.message == (
        f"attempt 1 ended: Preempted: worker run-1-1 was taken away after a notice{MISSED}"
    )
    expired = scene.noticed(1, remaining=0.0)
    assert expired.plan.message.endswith(f"(spot); no checkpoint came in time{MISSED}")


def test_who_sent_the_signal_is_known_later_and_it_is_still_said_that_nobody_asked() -> None:
    scene = evaluating(a_run(max_failures=1).running().got_sigterm(1)).with_exit(1, signal=15)
    scene = scene.after(scene.plan).noticed(1)
    assert scene.plan.message == (
        f"attempt 1 ended for another reason: Preempted: rank 1 was killed by SIGTERM{MISSED}"
    )


def test_a_script_that_asked_and_was_too_slow_is_not_told_so() -> None:
    scene = evaluating(a_run(max_preemptions=-1).running().noticed(1), calls=12)
    assert scene.noticed(1, remaining=0.0).plan.message.endswith("no checkpoint came in time")


def test_what_fails_by_itself_after_a_notice_has_nothing_to_do_with_it() -> None:
    scene = evaluating(a_run().running().noticed(1)).with_exit(0, exception="ValueError: x")
    assert (
        scene.plan.message == "attempt 1 ended: AppError: rank 0 exited with code 1: ValueError: x"
    )


def test_a_long_reason_is_cut() -> None:
    asked = a_run().running().noticed(1, reason="x" * 5000).plan.status.save_asked
    assert asked is not None
    assert len(asked.reason) == 128


def test_a_notice_to_a_worker_that_is_done_is_nothing_to_save_for() -> None:
    assert a_run().running().noticed(1).with_exit(1, code=0).plan.reason == "Running"


def test_a_notice_that_is_taken_back_is_no_reason_any_more() -> None:
    plan = a_run().running().asked_to_save().plan
    assert (plan.reason, plan.message) == (
        "SaveWithdrawn",
        "the requested checkpoint is no longer needed",
    )
    assert (plan.status.phase, plan.status.save_asked) == ("Running", None)


def test_a_save_that_has_begun_is_carried_through() -> None:
    scene = a_run().running().voted(0, calls=3, committed=3)
    assert scene.plan.message.endswith("workers have started to save")
    after = scene.after(scene.plan)
    assert after.plan.reason == "Preempting"
    assert after.answer(1).save == SaveOrder(
        stage="Commit", call=3, reason="workers have started to save"
    )


def test_a_prepared_call_is_carried_through_although_nobody_wants_it_any_more() -> None:
    scene = a_run().running().voted(0, calls=2, prepared=3).voted(1, calls=2, prepared=3)
    after = scene.after(scene.plan)
    assert after.answer(0).save == SaveOrder(
        stage="Commit", call=3, reason="workers have started to save"
    )


def test_a_save_is_not_withdrawn_before_everybody_was_heard() -> None:
    scene = a_run().running().asked_to_save().unheard(1)
    assert scene.plan.status.save_asked is not None


def test_the_writer_is_the_lowest_rank_not_under_notice_when_the_save_is_asked_for() -> None:
    scene = a_run(replicas=3, processes_per_worker=2).running().noticed(0, remaining=20.0)
    asked = scene.plan.status.save_asked
    assert asked is not None
    assert asked.writer_rank == 2


def test_the_writer_stays_the_same_when_another_worker_gets_a_notice_later() -> None:
    scene = a_run(replicas=3).running().voted(2, calls=1)
    scene = scene.noticed(0).asked_to_save(writer_rank=1).noticed(1)
    assert {scene.answer(slot).save.writer_rank for slot in range(3)} == {1}  # type: ignore[union-attr]


def test_everybody_is_told_the_same_call_with_reason_deadline_and_writer() -> None:
    scene = a_run(replicas=3, processes_per_worker=2).running()
    scene = scene.noticed(0, remaining=20.0).asked_to_save("spot", writer_rank=2).voted(1, calls=7)
    order = SaveOrder(stage="Prepare", call=8, reason="spot", deadline=20.0, writer_rank=2)
    assert {scene.answer(slot).save for slot in range(3)} == {order}


def test_a_notice_without_a_deadline_is_taken_for_two_minutes() -> None:
    scene = a_run().running().voted(0, calls=1).noticed(1, age=20.0).asked_to_save("spot")
    order = scene.answer(0).save
    assert order is not None
    assert (order.deadline, order.writer_rank) == (100.0, 0)


def test_the_earliest_deadline_counts_and_rank_0_writes_when_all_are_under_notice() -> None:
    scene = a_run().running().voted(0, calls=1).noticed(0, remaining=50.0)
    order = scene.noticed(1, remaining=9.0).asked_to_save().answer(0).save
    assert order is not None
    assert (order.deadline, order.writer_rank) == (9.0, 0)


def test_a_worker_that_has_not_been_heard_holds_the_agreement_up() -> None:
    scene = a_run().running().noticed(0).asked_to_save().unheard(1)
    assert scene.answer(0).save is None


def test_a_worker_whose_processes_ended_well_is_not_waited_for() -> None:
    scene = a_run().running().noticed(0).asked_to_save().voted(0, calls=5).with_exit(1, code=0)
    order = scene.answer(0).save
    assert order is not None
    assert (order.stage, order.call) == ("Prepare", 6)


def test_a_call_that_was_refused_by_a_worker_that_ended_is_aborted() -> None:
    """Whoever was told so has gone on: the others must not save at that call alone."""
    scene = a_run().running().noticed(0).asked_to_save().voted(0, calls=5, prepared=6)
    scene = scene.voted(1, calls=9, refused=6).with_exit(1, code=0)
    order = scene.answer(0).save
    assert order is not None
    assert (order.stage, order.call) == ("Abort", 6)


# ---------------------------------------------------------------------------- saved, or not


def test_a_saved_checkpoint_ends_the_attempt_as_a_preemption() -> None:
    scene = saved(a_run(max_preemptions=-1).running().noticed(1).asked_to_save())
    plan = scene.plan
    assert plan.reason == "Preempted"
    assert plan.message == (
        "attempt 1 ended: Preempted: worker run-1-1 is being taken away (spot); saved step 12 "
        "or later"
    )
    incident, ending = plan.status.incident, plan.status.ending
    assert incident is not None
    assert ending is not None
    assert (incident.budget, ending.flush) == ("preemptions", (12,))
    assert plan.status.save_asked is None


def test_a_save_that_was_committed_fast_is_seen_as_well() -> None:
    scene = saved(a_run(max_preemptions=-1).running().noticed(1).asked_to_save())
    assert scene.committed(0, 12).plan.reason == "Preempted"


def test_a_save_that_only_some_ranks_staged_is_waited_for() -> None:
    scene = a_run().running().noticed(1).asked_to_save().voted(0, calls=9, committed=9)
    assert scene.staged(0, 12, after_save=True).plan.reason == "Preempting"


def test_a_checkpoint_for_a_call_that_nobody_has_agreed_to_ends_nothing() -> None:
    """Ranks may still be told to prepare that call: ending now would cut their save in two."""
    scene = a_run().running().noticed(1, remaining=30.0).asked_to_save()
    scene = scene.voted(0, calls=9, prepared=10).voted(1, calls=9)
    scene = scene.staged_by_all(12, after_save=True)
    assert scene.plan.reason == "Preempting"
    agreed = scene.voted(0, calls=10, committed=10)
    assert agreed.plan.reason == "Preempted"


def test_a_whole_checkpoint_of_one_rank_is_enough() -> None:
    scene = a_run().running().noticed(1).asked_to_save().voted(0, calls=9, committed=9)
    assert scene.staged(0, 12, after_save=True, whole=True).plan.reason == "Preempted"


def test_when_the_time_is_over_the_attempt_ends_without_a_checkpoint() -> None:
    scene = a_run(max_failures=1).running().noticed(1, remaining=0.0).asked_to_save()
    scene = scene.voted(0, calls=9)
    assert scene.plan.message.endswith("taken away (spot); no checkpoint came in time")
    assert scene.plan.reason == "Preempted"


def test_a_script_without_should_save_is_not_waited_for_until_its_worker_goes() -> None:
    scene = a_run(max_failures=1).running().noticed(1, remaining=100.0).asked_to_save()
    assert scene.plan.reason == "Preempted"
    assert scene.plan.message.endswith(
        "(spot); the script never called trainrun.should_save(): its processes get SIGTERM and "
        "75 s to end"
    )


def test_a_worker_under_notice_that_was_not_heard_may_use_should_save() -> None:
    scene = a_run(max_failures=1).running().noticed(1, remaining=5.0).asked_to_save()
    assert scene.unheard(0).plan.reason == "Preempting"


def test_the_last_of_several_workers_to_go_decides_how_long_it_may_take() -> None:
    scene = a_run().running().voted(0, calls=9).noticed(0, remaining=0.0)
    assert scene.noticed(1, remaining=5.0).asked_to_save().plan.reason == "Preempting"


def test_workers_that_yielded_under_notice_are_preempted() -> None:
    scene = a_run(max_failures=1).running().noticed(1).all_done(yielded=True)
    assert scene.plan.message.endswith("taken away (spot); the script ended after saving")


def test_a_save_for_a_notice_that_was_taken_back_still_ends() -> None:
    scene = saved(a_run().running().asked_to_save())
    assert (scene.plan.reason, scene.plan.message) == (
        "Yielded",
        "saved step 12 or later, and the reason to stop is gone: the run continues",
    )


def test_a_save_that_never_comes_is_not_waited_for_for_ever() -> None:
    scene = a_run().running().voted(0, calls=9, committed=9)
    assert scene.asked_to_save(ago=600).plan.reason == "Preempting"
    assert scene.asked_to_save(ago=601).plan.reason == "Yielded"


def leaving(*problems: Problem) -> WorkerObservation:
    """Slot 1's worker saved on notice and uploads; its replacement is there already."""
    scene = saved(a_run(max_preemptions=-1).running().noticed(1).asked_to_save())
    scene = scene.after(scene.plan, passed=5).with_agent(0, phase="Idle")
    scene = scene.with_agent(1, phase="Flushing", problems=problems)
    return scene.plus(a_worker(1, 2, agent=an_agent(1, 2)))


def test_what_a_leaving_worker_saved_is_in_the_store_before_the_store_is_asked() -> None:
    scene = leaving()
    assert (scene.plan.reason, scene.plan.message) == (
        "Flushing",
        "waiting for the uploads of slot 1",
    )
    assert scene.hold(0).resolve is None
    assert scene.hold(1).flush == (12,)
    uploaded = replace(
        scene, workers=(*leaving().with_agent(1, phase="Idle").workers[:2], a_worker(1, 2))
    )
    assert uploaded.plan.reason == "Resolving"


def test_uploads_of_a_leaving_worker_outlast_a_store_that_is_away() -> None:
    away = Problem(type="StorageUnavailable", reason="StoreUnavailable", message="no route to s3")
    scene = leaving(away)
    assert scene.plan.message == "waiting for the uploads of slot 1: no route to s3"
    for _ in range(12):
        scene = scene.after(scene.plan, passed=5)
        scene = scene.after(scene.plan)
    assert scene.plan.message == "waiting for the uploads of slot 1: no route to s3"


def test_uploads_of_a_leaving_worker_are_not_waited_for_for_ever() -> None:
    scene = leaving()
    assert scene.after(scene.plan, passed=25).plan.reason == "Flushing"
    assert scene.after(scene.plan, passed=26).plan.reason == "Resolving"


def test_uploads_of_a_worker_that_is_gone_are_not_waited_for() -> None:
    scene = leaving()
    old = replace(scene.workers[1], phase="Ended")
    gone = replace(scene, workers=(scene.workers[0], old, scene.workers[2]))
    assert gone.plan.reason == "Resolving"


def test_a_new_operator_listens_to_the_leaving_worker_first() -> None:
    scene = leaving()
    unheard = replace(scene.workers[1], agent=None)
    assert replace(scene, workers=(scene.workers[0], unheard, scene.workers[2])).plan.reason == (
        "Flushing"
    )


# ---------------------------------------------------------------------------- suspend and resume


def test_suspend_asks_for_a_checkpoint_first() -> None:
    scene = a_run().running().with_config(suspend=True)
    assert scene.plan.reason == "SaveAsked"
    assert scene.plan.message == "asking the training for a checkpoint: spec.suspend is true"


def test_a_script_without_should_save_is_suspended_at_once() -> None:
    scene = suspended(a_run().running())
    assert scene.plan.message == (
        "suspending: the script never called trainrun.should_save(): its processes get SIGTERM and "
        "30 s to end"
    )


def test_a_script_with_should_save_has_ten_minutes_to_save() -> None:
    scene = a_run(suspend=True).running().voted(0, calls=4)
    assert scene.asked_to_save(ago=600).plan.reason == "Preempting"
    assert scene.asked_to_save(ago=601).plan.message == "suspending: no checkpoint came in time"


def test_a_worker_that_was_not_heard_may_use_should_save() -> None:
    assert a_run(suspend=True).running().asked_to_save().unheard(1).plan.reason == "Preempting"


def test_a_saved_run_is_suspended_without_any_charge() -> None:
    scene = suspended(a_run().running())
    scene = saved(scene)
    plan = scene.plan
    assert (plan.reason, plan.message) == ("Suspending", "suspending: saved step 12 or later")
    assert plan.status.incident is None
    scene = scene.after(plan).with_agent(0, phase="Flushing").with_agent(1, phase="Idle")
    assert scene.plan.reason == "Suspending"
    assert scene.plan.message == "waiting for 1 worker to stop and to finish their uploads"
    scene = scene.with_agent(0, phase="Idle").committed(0, 12)
    assert scene.plan.reason == "Suspended"
    assert scene.plan.status.is_true("Suspended")
    assert scene.plan.status.failures.counted == 0


def test_a_suspension_waits_until_what_everybody_has_stored_is_committed() -> None:
    scene = saved(suspended(a_run(flush_timeout=seconds(30)).running()))
    scene = scene.after(scene.plan)
    for slot in range(2):
        scene = scene.with_agent(slot, phase="Idle").staged(slot, 12, uploaded=True)
    assert scene.plan.reason == "Suspending"
    assert scene.plan.message == "every worker has staged step 12; waiting for its commit"
    assert scene.committed(0, 12).plan.reason == "Suspended"
    assert scene.lost(0, Cause.NODE_LOST).plan.reason == "Suspended"
    assert scene.without(0).plan.reason == "Suspended"


@pytest.mark.parametrize("uploaded", [False, True])
def test_a_suspension_waits_for_a_step_that_was_completed_when_it_began(uploaded: bool) -> None:
    # Seen as `trainrun status` naming step 37 and the next start beginning at 38.
    scene = saved(suspended(a_run(flush_timeout=seconds(30)).running()))
    scene = scene.after(scene.plan)
    for slot in range(2):
        scene = scene.staged(slot, 13, uploaded=uploaded)
    scene = scene.with_all(phase="Idle").committed(0, 12)
    order = scene.plan.answers["run-0-1"].order
    assert isinstance(order, Hold)
    assert order.flush == (12, 13)
    assert scene.plan.message == "every worker has staged step 13; waiting for its commit"
    assert scene.committed(0, 13).plan.reason == "Suspended"


def test_a_worker_that_hangs_or_is_gone_does_not_hold_a_suspension_up() -> None:
    scene = a_run(replicas=3, suspend=True, flush_timeout=seconds(30)).running()
    scene = scene.ended(kind="Suspend", ago=50)
    assert scene.with_agent(1, phase="Running").plan.reason == "Suspending"
    assert scene.unheard(1).plan.reason == "Suspending"
    assert scene.with_agent(1, phase="Running").silent(1, 40).plan.reason == "Suspended"
    assert scene.lost(1, Cause.NODE_LOST).plan.reason == "Suspended"
    late = a_run(suspend=True).running().ended(kind="Suspend", ago=61)
    assert late.with_agent(1, phase="Running").plan.reason == "Suspended"


def test_a_suspended_run_sends_its_workers_away() -> None:
    scene = a_run(suspend=True).running().ended(kind="Suspend")
    scene = scene.after(scene.plan, passed=60)
    assert (scene.plan.reason, scene.plan.message) == ("Suspended", "the run is suspended")
    assert scene.answer(0).order == Exit(code=0, attempt=2)
    assert scene.plan.actions == ()
    gone = scene.with_worker(0, phase="Ended").unheard(1).plan.actions
    assert gone == (
        DeleteWorker(name="run-0-1", reason="the run is suspended"),
        DeleteWorker(name="run-1-1", reason="the run is suspended"),
    )
    assert scene.with_worker(0, phase="Ended", deleting=True).plan.actions == ()
    late = scene.after(scene.plan, passed=1)
    assert len(late.plan.actions) == 2
    assert scene.without(0).without(1).plan.requeue_after is None


def test_a_run_that_was_created_suspended_makes_no_workers() -> None:
    scene = a_run(suspend=True)
    assert scene.plan.reason == "Suspended"
    after = scene.after(scene.plan)
    assert (after.plan.reason, after.plan.actions) == ("Suspended", ())


def test_a_run_that_goes_on_restarts_its_clock() -> None:
    scene = a_run(suspend=True, active_deadline=seconds(1800)).running().ended(kind="Suspend")
    scene = scene.after(scene.plan).with_config(suspend=False)
    plan = scene.plan
    assert (plan.reason, plan.message) == ("Resumed", "the run continues")
    assert (plan.status.start_time, plan.status.phase) == (scene.now, "Restarting")
    assert not plan.status.is_true("Suspended")
    assert scene.after(plan).with_all(phase="Idle").plan.reason == "Resolving"


def test_a_run_that_was_suspended_before_its_start_is_pending_again() -> None:
    scene = a_run(suspend=True)
    scene = scene.after(scene.plan).with_config(suspend=False)
    assert scene.plan.status.phase == "Pending"


def test_an_incident_is_settled_by_a_suspension() -> None:
    scene = a_run(suspend=True, max_failures=1).running().ended(an_incident())
    status = scene.plan.status
    assert scene.plan.reason == "Suspended"
    assert (status.failures.counted, status.incident, len(status.incidents)) == (1, None, 1)


def test_an_incident_beyond_the_budget_fails_a_run_that_is_to_be_suspended() -> None:
    scene = a_run(suspend=True).running().ended(an_incident())
    assert scene.plan.reason == "MaxFailuresExceeded"


def test_a_suspension_is_no_part_of_a_recovery() -> None:
    scene = a_run(suspend=True, max_failures=1).running().ended(an_incident())
    scene = scene.after(scene.plan, passed=30000).running(2).with_config(suspend=False)
    scene = scene.with_all(first_step=1.0)
    assert scene.plan.status.incidents[-1].recovery_seconds is None


# ---------------------------------------------------------------------------- template edits


def test_a_template_edit_is_rolled_out_after_a_save() -> None:
    scene = a_run().running().with_config(template_hash="t2")
    assert (
        scene.plan.message == "asking the training for a checkpoint: workers.template has changed"
    )
    scene = saved(scene.after(scene.plan).voted(0, calls=1))
    plan = scene.plan
    assert plan.reason == "TemplateChanged"
    assert plan.message == (
        "workers.template has changed: saved step 12 or later; all workers are recreated"
    )
    after = scene.after(plan).with_all(phase="Idle")
    names = [action.name for action in after.plan.actions]
    assert names == ["run-0-1", "run-1-1", "run-0-2", "run-1-2"]
    assert after.plan.status.incident is None


def test_a_template_edit_that_is_taken_back_is_no_reason_any_more() -> None:
    scene = a_run().running().with_config(template_hash="t2")
    scene = scene.after(scene.plan).with_config(template_hash="t1")
    assert scene.plan.reason == "SaveWithdrawn"


def test_a_gang_never_mixes_templates() -> None:
    scene = (
        a_run(template_hash="t2")
        .waiting()
        .plus(a_worker(0, 2, template_hash="t2", agent=an_agent(0, 2)))
    )
    assert scene.plan.reason == "Gathering"
    assert scene.plan.message == "waiting for the worker of slot 1"


# ---------------------------------------------------------------------------- more of them


def test_workers_that_get_a_notice_later_are_remembered_as_well() -> None:
    """A node is drained: its workers are told one after the other, and may vanish unseen."""
    scene = a_run(replicas=4).running().noticed(1).asked_to_save(leaving=(1,))
    plan = scene.noticed(3).plan
    assert (plan.reason, plan.transition) == ("SaveAsked", True)
    assert plan.message == "the worker of slot 3 will be taken away as well"
    assert plan.status.save_asked is not None
    assert plan.status.save_asked.leaving == (1, 3)
    both = scene.noticed(2).noticed(3).plan
    assert both.message == "the workers of slots 2, 3 will be taken away as well"
    gone = scene.after(plan).without(3).plan
    assert gone.message == (
        "attempt 1 ended: Preempted: worker run-3-1 was taken away after a notice"
    )


def test_of_very_many_leaving_workers_enough_are_remembered() -> None:
    scene = a_run(replicas=100).running().voted(0, calls=1)
    for slot in range(100):
        scene = scene.noticed(slot)
    asked = scene.plan.status.save_asked
    assert asked is not None
    assert asked.leaving == tuple(range(64))
    assert not scene.after(scene.plan).plan.transition


@pytest.mark.case(
    "nodes", "Somebody deletes a worker with a grace period", counted="maxPreemptions"
)
def test_a_worker_that_somebody_deletes_is_asked_to_save_first() -> None:
    leaving = Notice(reason="the pod was deleted", remaining=30.0)
    scene = a_run().running().with_worker(1, deleting=True, notice=leaving)
    assert scene.plan.message == (
        "asking the training for a checkpoint: worker of slot 1 will be taken away (the pod was "
        "deleted)"
    )
    asked = scene.after(scene.plan)
    ended = asked.with_worker(1, phase="Ended", exit_code=143)
    assert ended.plan.message == (
        "attempt 1 ended: Preempted: worker run-1-1 was taken away after a notice (the pod was "
        "deleted)"
    )
    assert asked.without(1).plan.status.incident is not None
    assert asked.without(1).plan.reason == "Preempted"


@pytest.mark.case("nodes", "Somebody asks for a restart by annotation")
def test_a_new_value_of_the_annotation_restarts_the_gang_once_and_counts_nothing() -> None:
    scene = a_run(restart="v2").running().with_status(restart="v1")
    scene = scene.voted(0, calls=5).voted(1, calls=5)
    asked = scene.after(scene.plan)
    assert asked.status.save_asked is not None
    assert asked.status.save_asked.reason == (
        "the annotation trainrun.dev/restart asks for a restart"
    )
    done = saved(asked)
    plan = done.plan
    assert (plan.reason, plan.message) == (
        "RestartAsked",
        "the annotation trainrun.dev/restart asks for a restart: saved step 12 or later; all "
        "processes are started again",
    )
    assert plan.status.ending is not None
    assert (plan.status.ending.kind, plan.status.incident) == ("Restart", None)
    gathering = done.after(plan).waiting().resolved()
    started = gathering.after(gathering.plan)
    assert (started.status.attempt, started.status.restart) == (2, "v2")
    assert started.running(2).plan.reason == "Running"
    assert started.status.failures.counted == 0


def test_a_run_that_is_started_with_the_annotation_is_not_restarted_for_it() -> None:
    scene = a_run(restart="v1").waiting().resolved()
    scene = scene.after(scene.plan)
    assert scene.status.restart == "v1"
    assert scene.running(1).plan.reason == "Running"
    assert scene.running(1).with_config(restart="").plan.reason == "Running"


def test_a_training_that_is_done_is_not_restarted() -> None:
    assert a_run(restart="v2").running().all_done().plan.reason == "Succeeded"
