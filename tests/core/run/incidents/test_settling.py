"""Settling an incident: what it is charged for, and what it says about progress."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run, an_incident
from trainrun_operator.api.run.rules import FailureRule
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.incidents.attribution import (
    fruitless_after,
    fruitless_refined,
    made_progress,
    settled,
)

BROKEN = "RuntimeError: [pair.cc] Connection reset by peer [10.0.0.2]"


def with_news_of_the_node() -> WorkerObservation:
    """A collective broke, was written as the incident, and now the node of a peer is gone."""
    scene = a_run(max_failures=3, max_preemptions=3).running().with_exit(0, exception=BROKEN)
    return scene.after(scene.plan).lost(1, Cause.NODE_LOST, "node b is gone")


def test_an_incident_is_charged_for_what_explains_it_best_when_it_is_settled() -> None:
    """Not for what the status says from the pass before: it would cost the other budget."""
    scene = with_news_of_the_node()
    assert scene.status.incident is not None
    assert scene.status.incident.cause == "AppError"
    after = settled(scene.view, scene.status)
    (incident,) = after.incidents
    assert (incident.cause, incident.message) == ("NodeLost", "node b is gone")
    assert (incident.budget, incident.counted) == ("preemptions", True)
    assert (after.failures.counted, after.failures.preemptions) == (0, 1)
    assert after.incident is None


def test_nothing_is_charged_where_nothing_is_open() -> None:
    scene = a_run().running()
    assert settled(scene.view, scene.status) is scene.status


def test_steps_that_are_told_after_the_end_of_their_attempt_count_when_it_is_settled() -> None:
    scene = a_run(max_failures=3).running().with_all(steps=(None,)).with_exit(0)
    scene = scene.after(scene.plan)
    assert (scene.status.reached, scene.status.stepped_from) == (None, "")
    after = settled(scene.with_agent(1, steps=(15,)).view, scene.status)
    assert (after.reached, after.stepped_from) == (15, "t1")


def resumed_at_10(reached: int | None, **status: int) -> WorkerObservation:
    """An attempt that began at step 10, and has come so far."""
    scene = a_run().running(2, resume=(1, 10)).with_all(steps=(reached,))
    return scene.with_status(**status)


@pytest.mark.parametrize(("reached", "progress"), [(None, False), (10, False), (11, True)])
def test_progress_is_a_step_beyond_the_one_that_was_handed_out(
    reached: int | None, progress: bool
) -> None:
    assert made_progress(resumed_at_10(reached).view) is progress


def test_a_checkpoint_that_is_committed_is_progress_though_no_step_was_reported() -> None:
    assert made_progress(resumed_at_10(None).committed(0, 11).view)


@pytest.mark.parametrize(("before", "progress"), [(11, True), (12, False), (None, True)])
def test_steps_that_any_attempt_before_had_done_as_well_are_no_progress(
    before: int | None, progress: bool
) -> None:
    assert made_progress(resumed_at_10(12).with_status(reached=before).view) is progress


@pytest.mark.parametrize("steps", [(10, 9) * 7, (100, 30, 50, 20, 90, 10, 80, 30, 99, 20, 60, 5)])
def test_uncounted_ends_at_changing_steps_before_the_highest_one_are_counted_in_the_end(
    steps: tuple[int, ...],
) -> None:
    """A script that raises RetryError here and there would have been restarted for ever."""
    rules = (FailureRule(action="RestartUncounted", exit_codes=(3,)),)
    scene = a_run(max_failures=2, rules=rules)
    for number, step in enumerate(steps, start=1):
        scene = scene.running(number).with_all(steps=(step,)).with_exit(0, code=3)
        scene = scene.after(scene.plan).waiting().resolved(None).without_backoff()
        scene = scene.after(scene.plan)
        if scene.status.finished:
            break
    mark = scene.status.condition("Failed")
    assert mark is not None
    assert (mark.reason, scene.status.failures.counted) == ("MaxFailuresExceeded", 3)


@pytest.mark.parametrize(
    ("cause", "reached", "before", "after"),
    [
        (Cause.RENDEZVOUS_FAILED, None, 0, 1),
        (Cause.RENDEZVOUS_FAILED, None, 4, 4),
        (Cause.RENDEZVOUS_FAILED, 15, 0, 0),
        (Cause.APP_ERROR, None, 0, 0),
        (Cause.APP_ERROR, 15, 3, 3),
    ],
)
def test_an_end_that_turns_out_to_be_free_begins_a_row_where_nothing_was_gained(
    cause: Cause, reached: int | None, before: int, after: int
) -> None:
    scene = resumed_at_10(reached, fruitless=before)
    assert fruitless_refined(scene.view, an_incident(cause, attempt=2)) == after


@pytest.mark.parametrize(
    ("cause", "reached", "after"),
    [
        (Cause.APP_ERROR, 15, 0),
        (Cause.RENDEZVOUS_FAILED, None, 4),
        (Cause.HUNG, 10, 4),
        (Cause.INTERRUPTED, None, 3),
    ],
)
def test_only_a_step_ends_a_row_of_ends_that_are_free_or_hang(
    cause: Cause, reached: int | None, after: int
) -> None:
    scene = resumed_at_10(reached, fruitless=3)
    assert fruitless_after(scene.view, an_incident(cause, attempt=2)) == after


@pytest.mark.parametrize(("reached", "progress"), [(5, False), (6, True)])
def test_from_nothing_progress_begins_beyond_what_was_lost(reached: int, progress: bool) -> None:
    scene = a_run().running(2).with_all(steps=(reached,))
    assert made_progress(scene.with_status(reached=5).view) is progress
