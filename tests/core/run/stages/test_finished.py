"""After the verdict: agents leave, logs stay, nothing is taken back."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run, an_incident, seconds
from trainrun.contract.answer import Exit
from trainrun_operator.core.run.boundary import DeleteRun, DeleteWorker


def succeeded(**config: object) -> WorkerObservation:
    scene = a_run(**config).running().all_done()
    return scene.after(scene.plan)


def failed(**incident: object) -> WorkerObservation:
    scene = a_run().running().ended(an_incident(**incident))
    return scene.after(scene.plan)


def test_a_run_that_succeeded_lets_its_workers_go_with_exit_code_0() -> None:
    scene = succeeded()
    assert (scene.plan.reason, scene.plan.status.phase) == ("Succeeded", "Succeeded")
    assert scene.answer(0).order == Exit(code=0, succeeded=True, attempt=2)
    assert scene.plan.requeue_after == seconds(5)


def test_a_failed_run_lets_its_workers_go_with_the_exit_code_of_the_culprit() -> None:
    scene = failed(exit_code=3)
    assert scene.plan.reason == "MaxFailuresExceeded"
    assert scene.plan.message.startswith(
        "rank 0 exited with code 1: ValueError: bad batch (AppError)"
    )
    assert scene.answer(1).order == Exit(code=3, attempt=2)


def test_without_a_culprits_exit_code_it_is_1() -> None:
    assert failed().answer(0).order == Exit(code=1, attempt=2)
    assert failed(exit_code=0).answer(0).order == Exit(code=1, attempt=2)
    scene = a_run(active_deadline=seconds(1)).running()
    assert scene.after(scene.plan).answer(0).order == Exit(code=1, attempt=2)


def test_a_finished_run_stays_finished_whatever_happens() -> None:
    scene = succeeded().with_config(suspend=True, template_hash="t2", active_deadline=seconds(1))
    later = scene.after(scene.plan, passed=9).without(0).with_exit(1, signal=9)
    assert later.plan.reason == "Succeeded"
    assert not later.plan.transition
    assert later.plan.status.completion_time == scene.status.completion_time


def test_workers_that_do_not_leave_are_deleted_and_ended_ones_stay_for_their_logs() -> None:
    scene = succeeded().with_worker(0, phase="Ended")
    assert scene.after(scene.plan, passed=60).plan.actions == ()
    late = scene.after(scene.plan, passed=61)
    assert late.plan.actions == (DeleteWorker(name="run-1-1", reason="the run has ended"),)
    assert late.with_worker(1, deleting=True).plan.actions == ()


@pytest.mark.case(
    "nodes",
    "The training container ends while another container of its pod runs",
    counted="its cause",
)
def test_other_containers_that_run_on_after_the_end_of_the_run_give_back_their_gpus() -> None:
    """A log shipper kept eight GPUs until somebody deleted the TrainRun."""
    scene = succeeded().with_worker(0, phase="Ended", holds_room=True)
    scene = scene.with_worker(1, phase="Ended")
    assert scene.after(scene.plan, passed=60).plan.actions == ()
    assert scene.plan.requeue_after == seconds(5)
    late = scene.after(scene.plan, passed=61)
    assert late.plan.actions == (DeleteWorker(name="run-0-1", reason="the run has ended"),)


def test_when_everybody_has_left_there_is_nothing_to_look_at() -> None:
    scene = succeeded().with_worker(0, phase="Ended").with_worker(1, phase="Ended")
    assert scene.plan.requeue_after is None


def test_a_finished_run_tells_who_may_still_store_what_belongs_to_its_end() -> None:
    """A sweep that believed the verdict alone took a trial's value from two seconds before."""
    scene = a_run().running().all_done()
    assert scene.plan.status.is_true("Complete")
    assert scene.plan.status.workers.leaving == 2
    over = scene.after(scene.plan)
    assert over.with_worker(0, phase="Ended").plan.status.workers.leaving == 1
    left = over.with_worker(0, phase="Ended").with_worker(1, phase="Ended")
    assert left.plan.status.workers.leaving == 0


def test_a_finished_run_does_not_wait_for_a_worker_that_is_not_heard_any_more() -> None:
    scene = failed().with_worker(0, phase="Ended").with_worker(1, silent_for=seconds(600))
    assert scene.plan.status.workers.leaving == 0


def test_a_finished_run_is_deleted_after_its_time_to_live() -> None:
    scene = succeeded(ttl_after_finished=seconds(100))
    scene = scene.with_worker(0, phase="Ended").with_worker(1, phase="Ended")
    assert scene.plan.requeue_after == seconds(101)
    kept = scene.after(scene.plan, passed=100)
    assert (kept.plan.actions, kept.plan.requeue_after) == ((), seconds(1))
    assert scene.after(scene.plan, passed=101).plan.actions == (DeleteRun(),)


def test_a_time_to_live_of_nothing_deletes_the_run_once_its_agents_have_left() -> None:
    """Deleted before, nobody writes `finished.json`: a run of its name would start anew."""
    scene = succeeded(ttl_after_finished=seconds(0))
    assert scene.plan.actions == ()
    scene = scene.after(scene.plan, passed=0.1)
    assert scene.plan.actions == ()
    assert scene.with_worker(0, phase="Ended").plan.actions == ()
    left = scene.with_worker(0, phase="Ended").with_worker(1, phase="Ended")
    assert left.plan.actions == (DeleteRun(),)


def test_a_run_whose_time_to_live_is_over_does_not_wait_for_ever_for_an_agent_to_leave() -> None:
    scene = succeeded(ttl_after_finished=seconds(0))
    assert scene.after(scene.plan, passed=61).plan.actions == (DeleteRun(),)


def test_a_verdict_without_a_time_counts_as_given_now() -> None:
    scene = succeeded(ttl_after_finished=seconds(5)).with_status(completion_time=None)
    assert scene.plan.actions == ()
