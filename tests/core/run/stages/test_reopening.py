"""A failed run goes on when the field that has ended it is raised, with its budgets kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import BEGIN, WorkerObservation, a_run, an_incident, seconds
from trainrun.contract.answer import Exit, Hold
from trainrun_operator.api.run.status import json_object, status_from
from trainrun_operator.api.run.status_parts import Cause, Failures
from trainrun_operator.core.run.boundary import DeleteRun


def failed(
    cause: Cause = Cause.APP_ERROR, used: Failures | None = None, **config: Any
) -> WorkerObservation:
    """The run has failed by this incident; its workers are still there."""
    scene = a_run(**config).running(3).with_status(failures=used or Failures())
    scene = scene.ended(an_incident(cause, attempt=3))
    return scene.after(scene.plan)


def reason(scene: WorkerObservation) -> str:
    mark = scene.status.condition("Failed")
    assert mark is not None
    return mark.reason if mark.status == "True" else ""


@pytest.mark.case("operator", "A run failed by a limit, and its user raises it")
def test_a_run_whose_limit_is_raised_goes_on_with_what_it_has_used() -> None:
    scene = failed(max_failures=1, used=Failures(counted=1))
    assert (reason(scene), scene.status.failures.counted) == ("MaxFailuresExceeded", 2)
    plan = scene.edited(max_failures=2).plan
    assert (plan.transition, plan.reason) == (True, "Reopened")
    assert plan.message == (
        "spec.failurePolicy.maxFailures now allows it: the run continues and keeps what it has "
        "used of its budgets"
    )
    status = plan.status
    assert (status.finished, status.phase, status.completion_time) == (False, "Restarting", None)
    assert (status.failures.counted, status.attempt) == (2, 3)
    assert [incident.attempt for incident in status.incidents] == [3]
    mark = status.condition("Failed")
    assert mark is not None
    assert (mark.status, mark.reason, mark.message) == ("False", "Reopened", plan.message)


def test_the_next_failure_beyond_the_raised_limit_fails_it_again() -> None:
    scene = failed(max_failures=1, used=Failures(counted=1)).edited(max_failures=2)
    scene = scene.after(scene.plan).waiting().resolved()
    scene = scene.after(scene.plan)
    assert (scene.status.attempt, scene.status.restarts) == (4, 1)
    scene = scene.running(4).ended(an_incident(attempt=4))
    scene = scene.after(scene.plan)
    assert (reason(scene), scene.status.failures.counted) == ("MaxFailuresExceeded", 3)


@pytest.mark.parametrize(
    ("cause", "config", "edit", "goes_on"),
    [
        (Cause.APP_ERROR, {}, {"max_failures": 1}, True),
        (Cause.APP_ERROR, {}, {"max_failures": -1}, True),
        (Cause.APP_ERROR, {}, {"max_preemptions": 9}, False),
        (Cause.APP_ERROR, {}, {}, False),
        (Cause.APP_ERROR, {}, {"template_hash": "t2"}, False),
        (Cause.PREEMPTED, {"max_preemptions": 0}, {"max_preemptions": 1}, True),
        (Cause.PREEMPTED, {"max_preemptions": 0}, {"max_failures": 5}, False),
        (Cause.PREEMPTED, {"max_preemptions": 0}, {"max_preemptions": None}, False),
        (Cause.START_FAILED, {"max_start_failures": 0}, {"max_start_failures": 1}, True),
        (Cause.START_FAILED, {}, {"max_start_failures": 0}, False),
        (Cause.NODE_LOST, {}, {"max_preemptions": 1}, True),
        (Cause.NODE_LOST, {}, {"max_start_failures": 1}, False),
    ],
)
def test_only_the_field_that_has_ended_it_lets_it_go_on(
    *, cause: Cause, config: dict[str, Any], edit: dict[str, Any], goes_on: bool
) -> None:
    scene = failed(cause, **config).edited(**edit)
    assert (scene.plan.reason == "Reopened") == goes_on


def test_a_run_that_preemptions_have_ended_goes_on_as_its_verdict_says() -> None:
    """They were charged to maxFailures for want of a budget of their own."""
    scene = failed(Cause.PREEMPTED)
    mark = scene.status.condition("Failed")
    assert mark is not None
    assert "set failurePolicy.maxPreemptions: -1" in mark.message
    again = scene.edited(max_preemptions=-1)
    assert again.plan.reason == "Reopened"
    assert again.plan.message.startswith("spec.failurePolicy.maxPreemptions now allows it")


def test_a_deadline_that_is_raised_keeps_what_its_attempt_has_gained() -> None:
    """Four crashes at step 10, then 5,000 steps until the deadline: the row was over."""
    scene = a_run(max_failures=-1, no_progress_limit=5, active_deadline=seconds(10)).running(5)
    scene = scene.with_all(steps=(5000,)).with_status(
        reached=10, without_progress=4, fruitless=4, free_ends={"RestartUncounted": 4}
    )
    status = scene.after(passed=20).plan.status
    assert status.is_true("Failed")
    assert (status.reached, status.without_progress) == (5000, 0)
    assert (status.fruitless, status.free_ends) == (0, {})


def test_a_deadline_that_ends_an_attempt_without_gain_keeps_the_row() -> None:
    scene = a_run(max_failures=-1, no_progress_limit=5, active_deadline=seconds(10)).running(5)
    scene = scene.with_all(steps=(9,)).with_status(
        reached=10, without_progress=4, fruitless=4, free_ends={"RestartUncounted": 4}
    )
    status = scene.after(passed=20).plan.status
    assert (status.reached, status.without_progress, status.fruitless) == (10, 4, 4)
    assert status.free_ends == {"RestartUncounted": 4}


def test_trouble_with_the_store_before_the_verdict_does_not_fail_it_again() -> None:
    scene = a_run(active_deadline=seconds(10))
    scene = scene.with_condition("StorageReady", "False", "StorageUnavailable", ago=9)
    scene = scene.after(passed=20)
    scene = scene.after(scene.plan)
    assert reason(scene) == "DeadlineExceeded"
    mark = scene.edited(active_deadline=None).plan.status.condition("StorageReady")
    assert mark is not None
    assert (mark.status, mark.reason) == ("Unknown", "NotAsked")


def test_without_an_edit_since_the_verdict_it_stays_failed() -> None:
    """What decides is the generation of the spec: an operator may read an older one."""
    assert failed().with_config(max_failures=5).plan.reason == "MaxFailuresExceeded"


def test_an_edit_that_came_with_the_verdict_lets_it_go_on_once_it_is_read() -> None:
    scene = a_run().running(3).ended(an_incident(attempt=3)).edited(max_failures=1)
    assert scene.plan.reason != "MaxFailuresExceeded"  # read in time, there is no verdict


def test_a_limit_that_is_raised_too_little_leaves_it_failed() -> None:
    assert failed(used=Failures(counted=4)).edited(max_failures=4).plan.reason != "Reopened"
    assert failed(used=Failures(counted=4)).edited(max_failures=5).plan.reason == "Reopened"


def test_a_run_that_has_succeeded_stays_so_whatever_is_edited() -> None:
    scene = a_run().running().all_done()
    assert scene.after(scene.plan).edited(max_failures=-1).plan.reason == "Succeeded"


def test_a_run_that_has_failed_for_something_else_stays_failed() -> None:
    scene = a_run().waiting().resolved(outcome="NotEmpty", message="not empty")
    scene = scene.after(scene.plan).edited(max_failures=-1, active_deadline=None)
    assert scene.plan.reason == "StorageNotEmpty"


def test_a_limit_without_progress_that_is_raised_keeps_the_row() -> None:
    scene = a_run(max_failures=-1, no_progress_limit=2).running(3).with_all(steps=(10,))
    scene = scene.with_status(without_progress=1, reached=10).with_exit(0)
    scene = scene.after(scene.plan).waiting().resolved()
    scene = scene.after(scene.plan)
    assert reason(scene) == "NoProgress"
    assert scene.edited(no_progress_limit=2).plan.reason == "NoProgress"
    assert scene.edited(no_progress_limit=0).plan.reason == "Reopened"
    again = scene.edited(no_progress_limit=3)
    assert again.plan.message.startswith("spec.failurePolicy.noProgressLimit now allows it")
    assert again.plan.status.without_progress == 2


def test_a_deadline_that_is_raised_does_not_count_the_time_for_which_it_stood_failed() -> None:
    """Else a deadline of two hours that is given the next morning would be over at once."""
    scene = a_run(active_deadline=seconds(3599)).running(1)
    scene = scene.after(scene.plan)
    assert reason(scene) == "DeadlineExceeded"
    later = scene.after(scene.plan, passed=36_000)
    assert later.edited(active_deadline=seconds(3600 - 1)).plan.reason == "DeadlineExceeded"
    again = later.edited(active_deadline=seconds(7200))
    status = again.plan.status
    assert status.start_time == BEGIN + seconds(36_000)
    assert status.ending is not None
    assert (status.ending.kind, status.ending.attempt) == ("Reopened", 1)
    assert again.after(again.plan).plan.reason != "DeadlineExceeded"
    assert later.edited(active_deadline=None).plan.reason == "Reopened"


def test_a_run_that_never_began_an_attempt_begins_to_gather() -> None:
    scene = a_run(active_deadline=seconds(10))
    scene = scene.after(scene.plan)
    assert reason(scene) == "DeadlineExceeded"
    again = scene.edited(active_deadline=None)
    assert (again.plan.status.phase, again.plan.status.ending) == ("Pending", None)
    assert again.after(again.plan).plan.reason == "Gathering"


def test_workers_that_were_told_to_leave_are_not_counted_on_and_the_new_order_is_newer() -> None:
    scene = failed()
    told = scene.answer(0).order
    assert isinstance(told, Exit)
    again = scene.edited(max_failures=1)
    again = again.after(again.plan)
    order = again.answer(0).order
    assert isinstance(order, Hold)
    assert (told.attempt, told.number) < (order.attempt, order.number)
    assert again.plan.reason == "Gathering"


def test_a_run_that_goes_on_is_not_deleted_for_its_old_end() -> None:
    scene = failed(ttl_after_finished=seconds(5))
    scene = scene.with_worker(0, phase="Ended").with_worker(1, phase="Ended")
    late = scene.after(scene.plan, passed=6)
    assert late.plan.actions == (DeleteRun(),)
    again = late.edited(max_failures=1)
    assert (again.plan.reason, again.plan.actions) == ("Reopened", ())
    assert DeleteRun() not in again.after(again.plan).plan.actions


def test_an_operator_that_takes_over_in_between_goes_on_from_the_status_alone() -> None:
    scene = failed().edited(max_failures=1)
    written = status_from(json_object(scene.plan.status))
    assert written == scene.plan.status
    assert not scene.after(scene.plan).plan.transition


def test_a_suspended_run_that_is_raised_stays_suspended() -> None:
    scene = failed().edited(max_failures=1, suspend=True)
    again = scene.after(scene.plan)
    assert again.plan.reason in ("Suspending", "Suspended")
