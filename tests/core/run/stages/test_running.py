"""While an attempt runs: what agents are told, the end, errors of the script, damage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import WorkerObservation, a_run, a_worker, an_agent, seconds
from trainrun.contract.agent_state import Damaged, Problem
from trainrun.contract.answer import Exit, Start
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import DeleteWorker


def deleted(scene: WorkerObservation) -> list[tuple[str, str]]:
    return [(a.name, a.reason) for a in scene.plan.actions if isinstance(a, DeleteWorker)]


def test_a_running_attempt_goes_on() -> None:
    plan = a_run(replicas=3).running(2).plan
    assert (plan.reason, plan.message) == ("Running", "attempt 2 is running")
    assert plan.status.phase == "Running"
    assert plan.actions == ()


def test_a_gang_that_trains_is_looked_at_every_fifteen_seconds_if_nothing_is_heard() -> None:
    assert a_run(replicas=3).running().plan.requeue_after == seconds(15)


def test_what_wakes_nobody_is_looked_for_more_often() -> None:
    assert a_run(progress_timeout=seconds(60)).running().plan.requeue_after == seconds(5)
    assert a_run(first_step_timeout=seconds(60)).running().plan.requeue_after == seconds(5)
    # One rank has ended, and the last checkpoint is awaited.
    one_done = a_run(replicas=2).running().with_exit(0, code=0)
    assert one_done.plan.requeue_after == seconds(5)


def test_a_deadline_is_not_slept_through() -> None:
    # The run began an hour ago.
    assert a_run(active_deadline=seconds(3604)).running().plan.requeue_after == seconds(4.01)
    assert a_run(active_deadline=seconds(9999)).running().plan.requeue_after == seconds(15)


def test_every_rank_gets_the_same_copy_of_the_start_record() -> None:
    scene = a_run(replicas=3, processes_per_worker=2).running(2, resume=(1, 30))
    orders = {scene.answer(slot).order for slot in range(3)}
    assert orders == {
        Start(
            attempt=2,
            workers=3,
            world_size=6,
            master_addr="10.0.0.1",
            master_port=20000,
            resume=CheckpointId(attempt=1, step=30),
        )
    }


def test_agents_are_told_since_when_there_is_something_in_the_store() -> None:
    scene = a_run().running(5)

    def told(**status: int) -> int:
        return scene.with_status(**status).answer(0).begun

    assert (told(), told(restarts=2), told(reached=0)) == (0, 0, 0)
    assert (told(reached=7, restarts=2), told(reached=7)) == (3, 5)


def test_the_lowest_slot_that_is_heard_tells_progress_each_second_and_others_as_they_poll() -> None:
    def asked(scene: WorkerObservation) -> dict[str, float]:
        return {name: answer.progress for name, answer in scene.plan.answers.items()}

    scene = a_run(replicas=3, heartbeat_timeout=seconds(15)).running(1)
    assert asked(scene) == {"run-0-1": 1.0, "run-1-1": 5.0, "run-2-1": 5.0}
    assert asked(scene.unheard(0)) == {"run-1-1": 1.0, "run-2-1": 5.0}
    nobody_joined = scene.with_all(attempt=0, phase="Idle")
    assert asked(nobody_joined) == {"run-0-1": 1.0, "run-1-1": 5.0, "run-2-1": 5.0}


def test_until_all_have_joined_the_attempt_is_starting() -> None:
    scene = a_run().running().with_agent(1, attempt=0, phase="Idle")
    assert scene.plan.status.phase == "Starting"
    running = scene.plan.status.condition("Running")
    assert running is not None
    assert (running.status, running.reason) == ("False", "Starting")


def test_a_worker_that_was_never_heard_is_not_answered() -> None:
    """Another agent may call under its name; it must not start what it does not stand in."""
    scene = a_run().running().unheard(1)
    assert set(scene.plan.answers) == {"run-0-1"}


def test_workers_without_a_place_are_told_to_leave_and_are_deleted() -> None:
    scene = a_run(replicas=1).running(3)
    record = scene.status.start_record
    assert record is not None
    scene = scene.with_status(start_record=replace(record, roster=(2,)))
    scene = scene.plus(
        a_worker(0, 2, agent=an_agent(0, 2, agent="0001-x", attempt=3, phase="Running")),
        a_worker(4, 1),
        a_worker(5, 1, deleting=True),
    )
    assert deleted(scene) == [
        ("run-0-1", "not part of attempt 3"),
        ("run-4-1", "not part of attempt 3"),
    ]
    assert scene.answer(0, 1).order == Exit()
    assert scene.answer(4, 1).order == Exit()
    assert scene.answer(0, 2).order.kind == "Start"


def test_a_worker_that_is_newer_than_the_roster_is_left_alone_while_we_may_be_stale() -> None:
    scene = a_run(replicas=1, start_timeout=seconds(60)).running().plus(a_worker(0, 2))
    assert deleted(scene) == []
    assert "run-0-2" not in scene.plan.answers
    late = scene.with_config(start_timeout=seconds(59))
    assert deleted(late) == [("run-0-2", "not part of attempt 1")]


# ---------------------------------------------------------------------------- losses


def test_a_loss_ends_the_attempt_and_opens_an_incident() -> None:
    scene = a_run(max_failures=2).running().with_exit(1, exception="ValueError: x", age=0.2)
    plan = scene.plan
    assert plan.transition
    assert (plan.actions, plan.answers) == ((), {})
    assert (plan.reason, plan.message) == (
        "AppError",
        "attempt 1 ended: AppError: rank 1 exited with code 1: ValueError: x",
    )
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "AppError")]
    incident = plan.status.incident
    assert incident is not None
    assert (incident.rank, incident.node, incident.exit_code) == (1, "node-1", 1)
    assert (incident.time, incident.detect_seconds) == (scene.now, 0.2)
    assert (incident.counted, plan.status.phase) == (False, "Restarting")


def test_all_losses_of_an_attempt_are_one_incident() -> None:
    scene = a_run(replicas=3, max_failures=5).running().with_exit(0).with_exit(1)
    scene = scene.after(scene.plan, passed=1).lost(2, Cause.NODE_LOST)
    scene = scene.after(scene.plan, passed=1)
    assert scene.status.incidents == ()
    assert scene.status.failures.text == "1/5"


# ---------------------------------------------------------------------------- errors of the script


def test_an_error_that_no_restart_cures_fails_the_run() -> None:
    fatal = Problem(
        type="CheckpointConflict", reason="SameName", message="ranks 0 and 1 bring a.pt"
    )
    plan = a_run(max_failures=-1).running().with_agent(1, fatal=fatal).plan
    assert (plan.reason, plan.message) == ("SameName", "ranks 0 and 1 bring a.pt")
    assert plan.status.phase == "Failed"
    assert plan.status.failures.counted == 0


def test_an_error_of_an_older_attempt_does_not_fail_this_one() -> None:
    fatal = Problem(type="X", reason="X", message="x")
    scene = a_run().running(2).with_agent(1, fatal=fatal, attempt=1, phase="Idle")
    assert scene.plan.reason == "Starting"


# ---------------------------------------------------------------------------- damage


def damaged(scene: WorkerObservation, *, step: int = 30) -> WorkerObservation:
    what = Damaged(id=CheckpointId(attempt=1, step=step), message="model.pt: wrong checksum")
    return scene.with_agent(1, damaged=what)


def test_a_damaged_resume_point_leads_back_to_the_one_before_and_is_free() -> None:
    plan = damaged(a_run().running(2, resume=(1, 30))).plan
    assert plan.reason == "CheckpointDamaged"
    assert plan.message == (
        "attempt 2 ended: CheckpointDamaged: checkpoint step-000000030-attempt-1 is damaged: "
        "model.pt: wrong checksum"
    )
    incident = plan.status.incident
    assert incident is not None
    assert (incident.budget, incident.worker) == ("none", "run-1-1")


def test_damage_of_another_checkpoint_does_not_stop_the_attempt() -> None:
    assert damaged(a_run().running(2, resume=(1, 30)), step=20).plan.reason == "Running"
    assert damaged(a_run().running(2)).plan.reason == "Running"


def test_damage_without_end_uses_up_the_budget() -> None:
    scene = damaged(a_run().running(2, resume=(1, 30)).with_all(steps=(None,)))
    scene = scene.with_status(fruitless=3, free_ends={Cause.CHECKPOINT_DAMAGED: 3})
    after = scene.after(scene.plan)
    assert after.status.failures.text == "1/0"
    assert after.plan.reason == "MaxFailuresExceeded"
    assert "look at bad/ in the store" in after.plan.message


# ---------------------------------------------------------------------------- the end


@pytest.mark.case("processes", "All ranks end with 0")
def test_a_run_whose_processes_all_ended_well_has_succeeded() -> None:
    plan = a_run().running().all_done().plan
    assert (plan.reason, plan.message) == (
        "Succeeded",
        "all 2 processes ended with exit code 0",
    )
    assert (plan.status.phase, plan.status.is_true("Complete")) == ("Succeeded", True)
    assert plan.status.completion_time is not None


def test_a_worker_that_is_done_may_leave_when_all_are_done() -> None:
    assert a_run().running().all_done().with_worker(1, phase="Ended").plan.reason == "Succeeded"


@pytest.mark.case("processes", "Some ranks end with 0 while others work on")
def test_a_rank_that_is_done_waits_for_the_others_for_any_length_of_time() -> None:
    assert a_run().running().with_exit(0, code=0, age=1e6).plan.reason == "Running"


def test_until_the_last_checkpoint_is_committed_the_run_is_finishing() -> None:
    scene = a_run().running().staged_by_all(24).all_done()
    plan = scene.plan
    assert (plan.reason, plan.status.phase) == ("Finishing", "Finishing")
    assert [step.step for step in scene.answer(1).steps] == [24]
    assert scene.committed(0, 24).plan.reason == "Succeeded"
    assert scene.committed(0, 12).plan.reason == "Finishing"


def test_a_last_checkpoint_that_cannot_be_committed_fails_the_run_in_the_end() -> None:
    scene = a_run().running().staged_by_all(24).all_done(age=600.0)
    assert scene.plan.reason == "Finishing"
    late = a_run().running().staged_by_all(24).all_done(age=601.0)
    assert (late.plan.reason, late.plan.message) == (
        "StorageError",
        "the last checkpoint (step 24) could not be committed within 600 s after training ended: "
        "the agents report no reason; check the store",
    )
    problem = Problem(type="StorageUnavailable", reason="Away", message="s3://b: timeout")
    told = late.with_agent(1, problems=(problem,)).plan.message
    assert told.endswith("after training ended: s3://b: timeout")


@pytest.mark.case(
    "processes",
    "A notice or an edit comes after all ranks ended, before the last commit",
    counted="its cause",
)
def test_nothing_is_stopped_for_a_notice_once_training_has_ended() -> None:
    scene = a_run(max_failures=0).running().noticed(1).asked_to_save(leaving=(1,))
    saved = scene.voted(0, calls=24, committed=24).staged_by_all(24, after_save=True)
    assert saved.plan.reason == "Preempted"
    plan = saved.all_done().plan
    assert (plan.reason, plan.status.phase) == ("Finishing", "Finishing")


def test_a_worker_lost_before_the_last_commit_is_an_incident() -> None:
    scene = a_run().running().staged_by_all(24).all_done().with_worker(1, phase="Ended")
    assert scene.plan.reason == "Unknown"


def test_a_run_that_only_reports_metrics_succeeds_too() -> None:
    assert a_run(replicas=1).running().all_done().plan.reason == "Succeeded"


def test_a_script_that_yielded_is_continued() -> None:
    scene = a_run().running().all_done(yielded=True)
    plan = scene.plan
    assert (plan.reason, plan.message) == (
        "Yielded",
        "the script ended after saving, and the reason to stop is gone: the run continues",
    )
    ending = plan.status.ending
    assert ending is not None
    assert (ending.kind, plan.status.incident) == ("Yielded", None)


def test_a_script_that_called_finish_has_finished_although_it_was_asked_to_save() -> None:
    scene = a_run().running().all_done(yielded=True).with_agent(0, finished=True)
    assert scene.plan.reason == "Succeeded"


@pytest.mark.slow
def test_a_run_that_fails_at_the_same_step_again_makes_no_progress() -> None:
    scene = a_run(max_failures=-1).running(2, resume=(1, 6)).with_status(reached=10)
    assert scene.with_exit(0, code=1).plan.status.fruitless == 1, "step 10 was reached before"
    scene = scene.with_status(reached=9, fruitless=7)
    assert scene.with_exit(0, code=1).plan.status.fruitless == 0, "step 10 is new"


def test_an_interrupted_driver_is_no_reason_to_go_slow() -> None:
    scene = a_run().running(2, resume=(1, 6)).with_status(reached=10, fruitless=5)
    status = scene.lost(0, Cause.INTERRUPTED, "the driver ended").plan.status
    assert status.ending is not None
    assert (status.ending.not_before, status.fruitless) == (None, 5)
