"""What people read: phase, counts, progress, checkpoint, conditions, recovery; events once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import WorkerObservation, a_run, an_incident, seconds
from trainrun.contract.agent_state import Problem
from trainrun_operator.api.run.status import Condition, TrainRunStatus
from trainrun_operator.core.run.planner import decide

WAITING = Problem(type="CheckpointWaiting", reason="RanksSilent", message="rank 1 brings nothing")


def condition(status: TrainRunStatus, type_: str) -> Condition:
    found = status.condition(type_)
    assert found is not None
    return found


# ---------------------------------------------------------------------------- warnings and events


def test_a_new_warning_is_written_and_told_once() -> None:
    scene = a_run().running().with_agent(1, problems=(WAITING,))
    plan = scene.plan
    assert plan.transition
    assert (plan.actions, plan.answers) == ((), {})
    assert [(e.type, e.reason, e.message) for e in plan.events] == [
        ("Warning", "CheckpointWaiting", "rank 1 brings nothing")
    ]
    again = scene.after(plan).plan
    assert (again.transition, again.events) == (False, ())
    assert condition(again.status, "CheckpointWaiting").message == "rank 1 brings nothing"


def test_a_warning_that_comes_with_a_decision_is_told_as_well() -> None:
    scene = a_run(max_failures=1).running().with_agent(1, problems=(WAITING,)).with_exit(0)
    assert [e.reason for e in scene.plan.events] == ["AppError", "CheckpointWaiting"]
    assert scene.after(scene.plan).plan.events == ()


def test_a_warning_leaves_when_it_is_over() -> None:
    scene = a_run().running().with_agent(1, problems=(WAITING,))
    over = scene.after(scene.plan).with_agent(1, problems=())
    assert over.plan.status.condition("CheckpointWaiting") is None
    assert over.plan.events == ()


def test_a_warning_of_several_workers_is_told_for_the_lowest_slot() -> None:
    other = Problem(type="CheckpointWaiting", reason="Other", message="other")
    scene = a_run().running().with_agent(0, problems=(WAITING,)).with_agent(1, problems=(other,))
    assert condition(scene.plan.status, "CheckpointWaiting").reason == "RanksSilent"


def test_what_hinders_the_operator_itself_is_a_warning_as_well() -> None:
    scene, lost = a_run().running(), Problem(type="OutputLost", reason="Unwritable", message="full")
    plan = decide(replace(scene.observation, problems=(lost,)), scene.config)
    assert condition(plan.status, "OutputLost").message == "full"
    assert [event.reason for event in plan.events] == ["OutputLost"]


def test_a_worker_that_has_ended_warns_no_more() -> None:
    scene = a_run().running().all_done().with_agent(1, problems=(WAITING,))
    scene = scene.with_worker(1, phase="Ended")
    assert scene.plan.status.condition("CheckpointWaiting") is None


def test_a_worker_cannot_set_the_conditions_that_others_rely_on() -> None:
    forged = Problem(type="Complete", reason="Forged", message="")
    assert not a_run().running().with_agent(0, problems=(forged,)).plan.status.is_true("Complete")


def test_texts_of_any_length_fit_into_a_condition() -> None:
    long = Problem(type="T" * 300, reason="R" * 300, message="m" * 9000)
    scene = a_run().running().with_agent(0, problems=(long,))
    mark = condition(scene.plan.status, "T" * 64)
    assert (mark.reason, len(mark.message)) == ("R" * 64, 2000)
    assert scene.after(scene.plan).plan.events == ()


def test_a_condition_keeps_its_time_while_only_its_message_changes() -> None:
    scene = a_run().running().with_agent(1, problems=(WAITING,))
    first = scene.plan.status
    later = Problem(type=WAITING.type, reason=WAITING.reason, message="since 40 s")
    second = scene.after(scene.plan, passed=40).with_agent(1, problems=(later,)).plan.status
    was, now = condition(first, "CheckpointWaiting"), condition(second, "CheckpointWaiting")
    assert now.message == "since 40 s"
    assert now.last_transition_time == was.last_transition_time


def test_conditions_are_sorted_by_type() -> None:
    scene = a_run().running().with_agent(1, problems=(WAITING,))
    types = [c.type for c in scene.plan.status.conditions]
    assert types == sorted(types)


def test_the_running_condition_says_what_is_waited_for() -> None:
    mark = condition(a_run().plan.status, "Running")
    assert (mark.status, mark.reason) == ("False", "Pending")
    assert mark.message == "waiting for the workers of slots 0, 1"
    mark = condition(a_run().running().plan.status, "Running")
    assert (mark.status, mark.message) == ("True", "all workers take part")


# ---------------------------------------------------------------------------- phase and counts


def test_phases_of_a_life() -> None:
    assert a_run().plan.status.phase == "Pending"
    assert a_run().running().with_agent(0, attempt=0).plan.status.phase == "Starting"
    assert a_run().running().plan.status.phase == "Running"
    assert (
        a_run().running().voted(0, calls=1).noticed(0).asked_to_save().plan.status.phase
        == "Preempting"
    )
    assert a_run(max_failures=1).running().ended(an_incident()).plan.status.phase == "Restarting"
    assert a_run().running().staged_by_all(3).all_done().plan.status.phase == "Finishing"


def test_a_run_that_trains_is_not_shown_as_starting_while_a_new_leader_listens() -> None:
    for before, now in {"Running": "Running", "Preempting": "Running"}.items():
        scene = a_run().running().with_status(phase=before).unheard(0)
        assert scene.plan.status.phase == now
        assert condition(scene.plan.status, "Running").status == "True"
    done = a_run().running().all_done().with_status(phase="Finishing").unheard(0)
    assert done.plan.status.phase == "Finishing"


def test_ready_counts_workers_that_wait_or_work_and_answer() -> None:
    scene = a_run(replicas=3)
    assert scene.plan.status.workers.text == "0/3"
    assert scene.waiting().plan.status.workers.text == "3/3"
    assert scene.waiting().unheard(0).plan.status.workers.text == "2/3"
    assert scene.waiting().silent(0, 31).plan.status.workers.text == "2/3"
    assert scene.running().plan.status.workers.text == "3/3"
    assert scene.running().with_exit(0, code=0).plan.status.workers.text == "3/3"
    gone = scene.with_config(max_failures=1).running().ended(an_incident()).without(1)
    assert gone.plan.status.workers.text == "2/3"


def test_workers_that_trained_are_shown_as_ready_while_a_new_leader_has_not_heard_them() -> None:
    scene = a_run(replicas=3).running().unheard(1).listening(3)
    assert scene.with_status(phase="Running").plan.status.workers.text == "3/3"
    assert scene.with_status(phase="Starting").plan.status.workers.text == "2/3"
    assert scene.with_status(phase="Running").without(1).plan.status.workers.text == "2/3"


def test_the_generation_that_was_acted_on_is_told() -> None:
    assert a_run().running().plan.status.observed_generation == 1


# ---------------------------------------------------------------------------- progress, checkpoint


def test_progress_is_that_of_slot_0() -> None:
    scene = a_run().running().with_agent(0, metrics={"loss": 0.5})
    progress = scene.plan.status.progress
    assert (progress.step, progress.metrics, progress.time) == (10, {"loss": 0.5}, scene.now)


def test_the_longest_wait_for_uploads_is_shown() -> None:
    scene = a_run(replicas=3).running()
    assert scene.plan.status.progress.stall_seconds == 0
    scene = scene.with_agent(1, stall=12.9).with_agent(2, stall=3.0)
    assert scene.plan.status.progress.stall_seconds == 12


def test_progress_that_did_not_change_keeps_its_time() -> None:
    scene = a_run().running()
    later = scene.after(scene.plan, passed=30)
    assert later.plan.status.progress.time == scene.now


def test_progress_is_told_by_another_worker_while_slot_0_is_not_heard() -> None:
    scene = a_run().running().with_agent(1, steps=(15,))
    assert scene.plan.status.progress.step == 10
    assert scene.unheard(0).plan.status.progress.step == 15
    assert scene.silent(0, 40).with_agent(0, steps=(12,)).plan.status.progress.step == 15


@pytest.mark.parametrize(("resume", "step"), [((1, 6), 6), (None, None)])
def test_an_attempt_that_has_not_reported_yet_shows_the_step_that_it_starts_from(
    resume: tuple[int, int] | None, step: int | None
) -> None:
    """Not the step that the attempt before had reached."""
    scene = a_run(max_failures=1).running().with_agent(0, metrics={"loss": 0.5}).with_exit(1)
    scene = scene.after(scene.plan)
    assert scene.plan.status.progress.step == 10
    scene = scene.waiting().resolved(resume=resume)
    scene = scene.after(scene.plan).with_all(attempt=2, phase="Running", steps=(None,))
    assert (scene.plan.status.progress.step, scene.plan.status.progress.metrics) == (step, {})


AWAY = Problem(type="StorageUnavailable", reason="NoSpaceLeft", message="step 12 waits: no space")


def test_a_store_that_is_full_while_training_is_not_called_ready() -> None:
    scene = a_run().running().with_condition("StorageReady", "True", "Resolved", ago=60)
    full = scene.with_agent(1, problems=(AWAY,))
    mark = condition(full.plan.status, "StorageReady")
    assert (mark.status, mark.reason, mark.message) == (
        "False",
        "StorageUnavailable",
        "step 12 waits: no space",
    )
    assert [(e.reason, e.message) for e in full.plan.events] == [
        ("StorageUnavailable", "step 12 waits: no space")
    ]
    again = full.after(full.plan).with_agent(1, problems=())
    mark = condition(again.plan.status, "StorageReady")
    assert (mark.status, mark.reason) == ("True", "Resolved")
    assert mark.message == "the store answers again"
    assert [e.reason for e in again.plan.events] == ["Resolved"]


def test_what_is_known_of_the_store_of_a_finished_run_stays() -> None:
    scene = a_run().running().all_done().with_condition("StorageReady", "True", "Resolved")
    scene = scene.after(scene.plan).with_agent(1, problems=(AWAY,))
    assert condition(scene.plan.status, "StorageReady").status == "True"


def test_the_newest_checkpoint_is_shown_with_its_place_and_time() -> None:
    scene = a_run().running(2).committed(1, 30, size_bytes=77, age=4.0)
    found = scene.plan.status.checkpoint
    assert found is not None
    assert found.uri == "s3://bucket/run/checkpoints/step-000000030-attempt-2"
    assert (found.step, found.attempt, found.size_bytes) == (30, 2, 77)
    assert found.time == scene.now - seconds(4)


def test_a_checkpoint_that_is_known_already_keeps_its_time() -> None:
    scene = a_run().running().committed(0, 30)
    scene = scene.after(scene.plan, passed=50)
    assert scene.plan.status.checkpoint == scene.status.checkpoint
    assert scene.committed(0, 20).plan.status.checkpoint == scene.status.checkpoint
    newer = scene.committed(0, 40).plan.status.checkpoint
    assert newer is not None
    assert newer.step == 40


# ---------------------------------------------------------------------------- recovery


def recovering() -> WorkerObservation:
    """Attempt 2 has just been started after an incident."""
    scene = a_run(max_failures=3).running().with_exit(0)
    scene = scene.after(scene.plan, passed=2).with_agent(1, phase="Idle").resolved()
    scene = scene.after(scene.plan)
    return scene.with_all(attempt=2, phase="Running", exits=(), steps=(None,))


def test_the_time_of_a_recovery_is_noted_once_at_the_first_step() -> None:
    scene = recovering()
    assert scene.plan.status.incidents[-1].recovery_seconds is None
    scene = scene.after(scene.plan, passed=10).with_agent(1, first_step=1.5)
    incident = scene.plan.status.incidents[-1]
    assert (incident.restart_seconds, incident.recovery_seconds) == (2.0, 10.5)
    later = scene.after(scene.plan, passed=10).with_all(first_step=3.0)
    assert later.plan.status.incidents[-1].recovery_seconds == 10.5


def test_the_first_of_several_first_steps_counts() -> None:
    scene = (
        recovering().after(passed=10).with_agent(0, first_step=1.0).with_agent(1, first_step=3.0)
    )
    assert scene.plan.status.incidents[-1].recovery_seconds == 9.0


def test_a_recovery_takes_no_less_than_nothing() -> None:
    scene = recovering().with_all(first_step=1e6)
    assert scene.plan.status.incidents[-1].recovery_seconds == 0.0


@pytest.mark.parametrize("attempt", [2, 3])
def test_an_incident_of_this_attempt_has_not_recovered(attempt: int) -> None:
    scene = a_run(max_failures=3).running(2).with_all(first_step=1.0)
    scene = scene.with_status(incidents=(an_incident(attempt=attempt, restart_seconds=1.0),))
    assert scene.plan.status.incidents[-1].recovery_seconds is None
