"""The newest events stand in the status: whoever reads it can tell them, word for word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.builders import WorkerObservation, a_loss, a_new_run, a_run
from tests.support.levels import some
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import Event, Plan
from trainrun_operator.core.run.status_size import HISTORY_LIMIT, KEPT, history_size, with_history
from trainrun_operator.core.run.transitions import fail, failed_to_start, succeed

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainrun_operator.core.run.view import View


def written(scene: WorkerObservation, plan: Plan) -> list[Event]:
    """The events that the status of this plan holds."""
    assert {entry.time for entry in plan.status.history} == {scene.now}
    return [Event(type=e.type, reason=e.reason, message=e.message) for e in plan.status.history]


@pytest.mark.case("operator", "The answer to a status write is lost")
@pytest.mark.parametrize(
    "scene",
    [
        a_new_run(),
        a_run().waiting().resolved(),
        a_run().running().ended().resolved(resume=(1, 40)),
        a_run(max_failures=3).running().with_exit(1, code=3),
        a_run().running().with_config(suspend=True),
    ],
)
def test_events_are_written_with_the_status_that_they_tell_of(scene: WorkerObservation) -> None:
    plan = scene.plan
    assert plan.transition
    assert written(scene, plan) == list(plan.events) != []


def test_an_attempt_that_could_not_start_is_written() -> None:
    scene = a_run(max_failures=3).waiting()
    plan = with_history(failed_to_start(scene.view, a_loss(Cause.START_FAILED)), scene.now)
    assert written(scene, plan) == list(plan.events)


@pytest.mark.parametrize("verdict", [succeed, fail])
def test_the_verdict_is_written(verdict: Callable[[View, str, str], Plan]) -> None:
    scene = a_run().running()
    plan = with_history(verdict(scene.view, "ForAReason", "in words"), scene.now)
    assert written(scene, plan) == list(plan.events)


def test_a_plan_that_tells_nothing_leaves_the_history_as_it_is() -> None:
    scene = a_run(max_failures=3).running().with_exit(1, code=3)
    then = scene.after(scene.plan)
    assert then.plan.events == ()
    assert then.plan.status.history == scene.plan.status.history


def an_event(message: str) -> Event:
    return Event(type="Warning", reason="AppError", message=message)


def told(scene: WorkerObservation, *messages: str) -> WorkerObservation:
    plan = Plan(
        reason="",
        message="",
        status=scene.status,
        events=tuple(an_event(message) for message in messages),
    )
    return scene.after(with_history(plan, scene.now), passed=1)


def test_the_newest_events_are_kept_for_whoever_takes_over() -> None:
    scene = a_run()
    for number in range(10):
        scene = told(scene, f"event {number}")
    assert [e.message for e in scene.status.history] == ["event 6", "event 7", "event 8", "event 9"]
    assert len(scene.status.history) == KEPT
    assert len(told(scene, *"abcdef").status.history) == 6


@pytest.mark.parametrize("text", some(["x", "ü€", "\x1b[0m\n"], quick=1))
def test_the_history_has_room_of_its_own(text: str) -> None:
    """Earlier events give way, new ones are shortened, none of them is left out."""
    scene = told(told(a_run(), "short"), text * 5000)
    assert [e.message[-1] for e in scene.status.history] == ["…"]
    assert history_size(scene.status.history) <= HISTORY_LIMIT
    scene = told(scene, *[text * 5000] * 8)
    assert len(scene.status.history) == 8
    assert history_size(scene.status.history) <= HISTORY_LIMIT
