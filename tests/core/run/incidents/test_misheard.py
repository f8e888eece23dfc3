"""A worker whose messages the operator cannot read: it lives, and nothing is charged for it."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run, seconds
from trainrun_operator.api.run.status import Condition

WHY = "phase: expected one of Idle, Running, got 'Dreaming'"


def shown(scene: WorkerObservation) -> Condition | None:
    return scene.plan.status.condition("OperatorError")


@pytest.mark.case("operator", "The operator cannot read what an agent says")
def test_a_worker_that_cannot_be_read_is_no_incident_and_the_run_says_so() -> None:
    scene = a_run(replicas=3).running().with_worker(1, unreadable=WHY)
    told = shown(scene)
    assert told is not None
    assert (told.status, told.reason) == ("True", "MessageUnreadable")
    assert told.message == (
        f"messages of worker run-1-1 cannot be read: {WHY}; it counts as alive, gets no orders and "
        "is charged to no budget. Use versions of operator and worker image that understand each "
        "other"
    )
    assert [event.reason for event in scene.plan.events] == ["OperatorError"]
    assert scene.plan.status.incident is None


def test_how_many_they_are_is_told() -> None:
    scene = a_run(replicas=3).running()
    scene = scene.with_worker(1, unreadable=WHY).with_worker(2, unreadable=WHY)
    told = shown(scene)
    assert told is not None
    assert "messages of worker run-1-1 (and 1 other worker) cannot be read" in told.message


def test_the_condition_goes_when_it_can_be_read_again() -> None:
    scene = a_run(replicas=3).running().with_worker(1, unreadable=WHY)
    again = scene.after(scene.plan).with_worker(1, unreadable="")
    assert shown(again) is None


def test_one_that_a_new_leader_could_never_read_is_not_lost() -> None:
    scene = a_run(start_timeout=seconds(20)).running().listening(21).unheard(0)
    assert scene.with_worker(0, unreadable=WHY).plan.status.incident is None


def test_no_attempt_starts_with_it_and_its_start_has_not_failed() -> None:
    scene = a_run(replicas=2).waiting().with_worker(1, agent=None, age=seconds(1000))
    scene = scene.listening(1000)
    assert scene.plan.reason == "StartFailed"
    assert scene.with_worker(1, unreadable=WHY).plan.reason == "Gathering"


def test_one_that_says_nothing_any_more_is_lost_like_any_other() -> None:
    scene = a_run(start_timeout=seconds(20)).running().listening(60).unheard(0)
    scene = scene.with_worker(0, unreadable=WHY, silent_for=seconds(50))
    assert scene.plan.reason == "StartFailed"
    assert shown(scene) is None
