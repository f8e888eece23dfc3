"""Failures of a script in a row without progress: counted, warned of, and the end of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.builders import WorkerObservation, a_run, seconds
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.api.run.status import Condition
from trainrun_operator.api.run.status_parts import Cause, Ending, Progress
from trainrun_operator.core.run.causes import CAUSES
from trainrun_operator.core.run.config import config_of
from trainrun_operator.core.run.incidents.attempt_progress import noted

RETRY = ("trainrun.RetryError",)
WITHOUT_LIMIT = {"max_failures": -1, "max_preemptions": -1}


def crashed(
    scene: WorkerObservation, step: int | None, *, cause: Cause | None = None, **end: Any
) -> WorkerObservation:
    """The next attempt reaches this step, and rank 0 ends so; or the world knows the cause."""
    attempt = max(scene.status.attempt, 1)
    scene = scene.running(attempt).with_all(steps=(step,))
    scene = scene.lost(0, cause) if cause is not None else scene.with_exit(0, **end)
    return scene.after(scene.plan)


def restarted(scene: WorkerObservation) -> WorkerObservation:
    """The next attempt starts, or the run fails."""
    scene = scene.waiting().resolved().without_backoff()
    return scene.after(scene.plan)


def crashes(scene: WorkerObservation, *steps: int | None, **end: Any) -> WorkerObservation:
    for step in steps:
        if not scene.status.finished:
            scene = restarted(crashed(scene, step, **end))
    return scene


def verdict(scene: WorkerObservation) -> str:
    failed = scene.status.condition("Failed")
    return failed.reason if failed is not None else ""


def warning(scene: WorkerObservation) -> Condition | None:
    return scene.plan.status.condition("NoProgress")


@pytest.mark.case(
    "processes", "The script fails at the same step again and again", counted="maxFailures"
)
def test_the_same_step_again_and_again_ends_the_run() -> None:
    scene = crashes(a_run(no_progress_limit=3, **WITHOUT_LIMIT), 128, 128, 128)
    assert (verdict(scene), scene.status.without_progress) == ("", 2)
    scene = crashes(scene, 128, exception="FloatingPointError: nan")
    assert verdict(scene) == "NoProgress"
    failed = scene.status.condition("Failed")
    assert failed is not None
    assert failed.message == (
        "rank 0 exited with code 1: FloatingPointError: nan (AppError); 3 incidents in a row "
        "without a step above 128 or a newer checkpoint, and spec.failurePolicy.noProgressLimit is "
        "3: read the last lines of the rank named; the run resumes once the limit is raised"
    )
    assert scene.status.failures.counted == 4
    assert warning(scene) is None


def test_a_new_step_begins_the_row_anew_and_an_old_one_does_not() -> None:
    scene = crashes(a_run(no_progress_limit=3, **WITHOUT_LIMIT), 128, 128, 100)
    assert scene.status.without_progress == 2
    scene = crashes(scene, 129)
    assert (verdict(scene), scene.status.without_progress, scene.status.reached) == ("", 0, 129)


def ran_ahead(
    scene: WorkerObservation, saved: int, *, told: bool = True, **end: Any
) -> WorkerObservation:
    """An attempt in which rank 0 runs ahead to step 90, and whose newest checkpoint is `saved`."""
    handed = scene.status.start_record.resume_point if scene.status.start_record else None
    attempt, step = max(scene.status.attempt, 1), handed.step if handed is not None else -1
    scene = scene.running(attempt, resume=(handed.attempt, step) if handed is not None else None)
    scene = scene.with_agent(0, steps=(90,)).with_agent(1, steps=(max(saved, step),))
    scene = scene.committed(0, saved) if told and saved > step else scene
    scene = scene.with_exit(1, **end)
    return scene.after(scene.plan)


def resumed(scene: WorkerObservation, saved: int) -> WorkerObservation:
    """The next attempt starts from that checkpoint, or the run fails."""
    record, attempt = scene.status.start_record, scene.status.attempt
    handed = record.resume_point if record is not None else None
    if handed is not None and handed.step == saved:
        attempt = handed.attempt
    scene = scene.waiting().resolved((attempt, saved)).without_backoff()
    return scene.after(scene.plan)


@pytest.mark.parametrize("told", [True, False])
def test_a_rank_that_once_ran_ahead_does_not_make_the_run_wait(*, told: bool) -> None:
    """89 % of a run's time was backoff, though each attempt resumed from a newer checkpoint."""
    scene = a_run(no_progress_limit=3, **WITHOUT_LIMIT)
    for saved in (10, 20, 30, 40, 50):
        ended = ran_ahead(scene, saved, told=told)
        assert ended.status.fruitless <= (0 if told else 1), "the first restart is immediate"
        scene = resumed(ended, saved)
        assert (scene.status.fruitless, scene.status.without_progress) == (0, 0)
    for number in (1, 2):
        scene = resumed(ran_ahead(scene, 50), 50)
        assert (scene.status.fruitless, scene.status.without_progress) == (number, number)
    assert verdict(resumed(ran_ahead(scene, 50), 50)) == "NoProgress"


def test_the_warning_goes_with_a_newer_checkpoint() -> None:
    scene = a_run(no_progress_limit=5, **WITHOUT_LIMIT)
    for _ in range(4):
        scene = resumed(ran_ahead(scene, 10), 10)
    mark = warning(scene.running(scene.status.attempt, resume=(1, 10)))
    assert mark is not None
    assert mark.message.startswith(
        "3 incidents in a row without a step above 90 or a newer checkpoint; spec."
    )
    assert warning(scene.running(5, resume=(1, 10)).committed(0, 11)) is None


def test_a_script_that_asks_for_a_restart_after_each_new_checkpoint_is_never_charged() -> None:
    scene = a_run(max_failures=0)
    for saved in range(10, 80, 10):
        asks = {"exception": "trainrun.RetryError: more", "kinds": RETRY}
        scene = resumed(ran_ahead(scene, saved, **asks), saved)
    assert (scene.status.failures.counted, scene.status.free_ends) == (0, {})


def test_what_was_resumed_from_an_earlier_run_is_no_new_step() -> None:
    scene = a_run(no_progress_limit=3, **WITHOUT_LIMIT).running(1, resume=(1, 50))
    scene = scene.with_all(steps=(50,)).with_exit(0)
    assert restarted(scene.after(scene.plan)).status.without_progress == 1


@pytest.mark.parametrize("cause", [Cause.PREEMPTED, Cause.NODE_LOST, Cause.UNKNOWN])
def test_what_is_not_the_scripts_neither_counts_nor_ends_the_row(cause: Cause) -> None:
    scene = crashes(a_run(no_progress_limit=3, **WITHOUT_LIMIT), 10, 10)
    scene = crashes(scene, 10, cause=cause)
    assert scene.status.without_progress == 1
    assert verdict(crashes(scene, 10, 10)) == "NoProgress"


def test_a_preemption_after_new_steps_ends_the_row() -> None:
    scene = crashes(a_run(no_progress_limit=3, **WITHOUT_LIMIT), 10, 10, 10)
    assert crashes(scene, 20, cause=Cause.PREEMPTED).status.without_progress == 0


def test_out_of_memory_counts_as_well() -> None:
    scene = crashes(a_run(no_progress_limit=2, **WITHOUT_LIMIT), 10, 10, 10, oom=True)
    assert verdict(scene) == "NoProgress"
    counting = {cause for cause, row in CAUSES.items() if row.stands_still}
    assert counting == {
        Cause.APP_ERROR,
        Cause.ENDED_EARLY,
        Cause.OUT_OF_MEMORY,
        Cause.HUNG,
        Cause.TERMINATED,
    }


def test_a_suspension_neither_counts_nor_ends_the_row() -> None:
    scene = crashes(a_run(no_progress_limit=3, **WITHOUT_LIMIT), 10, 10, 10)
    scene = scene.running(scene.status.attempt).with_all(steps=(10,)).with_config(suspend=True)
    scene = scene.after(scene.plan)
    assert scene.status.without_progress == 2


def test_where_nobody_heard_what_an_attempt_reached_it_neither_counts_nor_ends_the_row() -> None:
    scene = crashes(a_run(no_progress_limit=3, **WITHOUT_LIMIT), 10, 10)
    scene = scene.running(scene.status.attempt).with_status(progress=Progress(step=10))
    for slot in range(2):
        scene = scene.unheard(slot)
    scene = scene.lost(0, Cause.OUT_OF_MEMORY)
    opened = scene.after(scene.plan)
    assert opened.status.ending is not None
    assert opened.status.ending.gain == "Unknown"
    assert restarted(opened).status.without_progress == 1


def test_a_script_that_never_reports_has_got_further_after_a_minute() -> None:
    scene, rows = a_run(no_progress_limit=2, **WITHOUT_LIMIT), []
    for up in (5.0, 90.0, 5.0, 5.0):
        scene = scene.running(max(scene.status.attempt, 1)).with_all(steps=(None,), spawned=up)
        scene = scene.with_exit(0)
        scene = restarted(scene.after(scene.plan))
        rows.append(scene.status.without_progress)
    assert rows == [1, 0, 1, 2]
    assert verdict(scene) == "NoProgress"
    failed = scene.status.condition("Failed")
    assert failed is not None
    assert "2 incidents in a row without 60 s of training" in failed.message


def test_the_budget_says_first_that_it_is_exceeded() -> None:
    scene = crashes(a_run(max_failures=2, no_progress_limit=2), 10, 10, 10)
    assert verdict(scene) == "MaxFailuresExceeded"


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        ({}, 0),
        ({"maxFailures": 9}, 0),
        ({"maxFailures": -1}, 5),
        ({"maxFailures": -1, "noProgressLimit": -1}, 0),
        ({"maxFailures": -1, "noProgressLimit": 9}, 9),
        ({"maxFailures": 9, "noProgressLimit": 2}, 2),
    ],
)
def test_a_finite_budget_is_a_bound_of_its_own(policy: dict[str, int], limit: int) -> None:
    run = {
        "apiVersion": "trainrun.dev/v1alpha1",
        "kind": "TrainRun",
        "metadata": {"name": "run"},
        "spec": {
            "workers": {
                "template": {
                    "spec": {"containers": [{"name": "w", "image": "i", "command": ["c"]}]}
                }
            },
            "storage": {"uri": "s3://bucket"},
            "failurePolicy": policy,
        },
    }
    assert config_of(TRAINRUN.model.model_validate(run)).no_progress_limit == limit


def test_from_the_third_on_a_condition_warns_until_a_new_step() -> None:
    scene = crashes(a_run(no_progress_limit=5, **WITHOUT_LIMIT), 10, 10, 10)
    assert warning(scene) is None
    scene = crashed(scene, 10)
    mark = warning(scene)
    assert mark is not None
    assert (mark.status, mark.reason, mark.message) == (
        "True",
        "NoNewStep",
        "3 incidents in a row without a step above 10 or a newer checkpoint; "
        "spec.failurePolicy.noProgressLimit is 5: 2 more end the run",
    )
    scene = restarted(scene)
    scene = scene.running(scene.status.attempt).with_all(steps=(9,))
    assert warning(scene) is not None
    assert warning(scene.with_all(steps=(11,))) is None


def test_the_last_warning_says_that_one_more_ends_the_run() -> None:
    scene = crashed(crashes(a_run(no_progress_limit=4, **WITHOUT_LIMIT), 10, 10, 10), 10)
    mark = warning(scene)
    assert mark is not None
    assert mark.message.endswith("noProgressLimit is 4: one more ends the run")


def test_a_limit_that_the_row_has_reached_by_an_edit_holds_for_the_scripts_next_failure() -> None:
    scene = crashes(a_run(no_progress_limit=9, **WITHOUT_LIMIT), 10, 10, 10, 10)
    scene = crashes(scene.with_config(no_progress_limit=3), 10, cause=Cause.PREEMPTED)
    mark = warning(scene)
    assert mark is not None
    assert mark.message.endswith("noProgressLimit is 3: one more ends the run")
    assert verdict(scene) == ""
    assert verdict(crashes(scene, 10)) == "NoProgress"


def test_the_time_after_an_attempt_is_no_training() -> None:
    scene = a_run(**WITHOUT_LIMIT).running().with_status(without_progress=2)
    scene = scene.with_all(steps=(None,), spawned=5.0).with_exit(0)
    scene = scene.after(scene.plan).without(0).without(1)
    assert warning(scene.after(scene.plan, passed=90)) is not None


def test_without_a_limit_the_condition_names_the_field() -> None:
    scene = crashed(crashes(a_run(**WITHOUT_LIMIT), 10, 10, 10), 10)
    mark = warning(scene)
    assert mark is not None
    assert mark.message == (
        "3 incidents in a row without a step above 10 or a newer checkpoint; "
        "spec.failurePolicy.noProgressLimit would end the run before its budget does"
    )


def test_a_step_that_is_told_late_is_progress() -> None:
    scene = crashes(a_run(no_progress_limit=2, **WITHOUT_LIMIT), 10, 10)
    opened = crashed(scene, 10)
    assert opened.plan.reason == "NoProgress"
    late = opened.with_agent(1, steps=(11,))
    assert late.plan.reason != "NoProgress"
    started = late.with_agent(1, phase="Idle").resolved().without_backoff().plan
    assert (started.reason, started.status.reached) == ("Started", 11)
    assert started.status.without_progress == 0


def test_a_start_that_fails_neither_counts_nor_ends_the_row() -> None:
    scene = crashes(a_run(no_progress_limit=3, **WITHOUT_LIMIT), 10, 10)
    assert crashes(scene, None, cause=Cause.START_FAILED).status.without_progress == 1


def test_a_script_that_never_makes_its_first_step_gets_no_further_however_long_it_was_up() -> None:
    limits = {"first_step_timeout": seconds(600), "no_progress_limit": 2}
    scene = a_run(**limits, **WITHOUT_LIMIT)
    for _ in (1, 2):
        scene = scene.running(max(scene.status.attempt, 1))
        scene = scene.with_all(steps=(None,), spawned=700.0, owes=601.0).asked_for_evidence()
        assert scene.plan.reason == "Hung"
        scene = restarted(scene.after(scene.plan))
        assert scene.status.fruitless > 0
    assert verdict(scene) == "NoProgress"


def test_of_an_attempt_without_a_start_record_nobody_knows_what_it_has_gained() -> None:
    view = a_run().view
    ending = Ending(attempt=1, kind="Incident", time=view.observation.now)
    ended = noted(view, replace(view.status, ending=ending)).ending
    assert ended is not None
    assert ended.gain == "Unknown"
