"""What a leader that takes over tells again: word for word what the one before was to tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.builders import a_loss, a_new_run, a_run
from trainrun_operator.core.causes import Cause
from trainrun_operator.core.history import retold
from trainrun_operator.core.transitions import fail, failed_to_start, succeed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.builders import Scene
    from trainrun_operator.core.plan import Event, Plan
    from trainrun_operator.core.view import View


def retold_after(scene: Scene, plan: Plan) -> list[Event]:
    assert plan.transition
    return [told.event for told in retold(plan.status) if told.time == scene.observation.now]


def test_a_run_that_has_done_nothing_has_no_history() -> None:
    assert retold(a_new_run().plan.status) == ()


@pytest.mark.parametrize(
    "scene", [a_run().waiting().resolved(), a_run().running().ended().resolved(resume=(1, 40))]
)
def test_the_start_of_an_attempt_is_told_again(scene: Scene) -> None:
    assert scene.plan.reason == "Started"
    assert retold_after(scene, scene.plan) == list(scene.plan.events)


def test_an_incident_is_told_again_after_the_start_that_it_ended() -> None:
    scene = a_run(max_failures=3).running().with_exit(1, code=3)
    plan = scene.plan
    assert plan.reason == "AppError"
    assert retold_after(scene, plan) == list(plan.events)
    assert [told.event.reason for told in retold(plan.status)] == ["Started", "AppError"]


def test_an_attempt_that_could_not_start_is_told_again() -> None:
    scene = a_run(max_failures=3).waiting()
    plan = failed_to_start(scene.view, a_loss(Cause.START_FAILED))
    assert retold_after(scene, plan) == list(plan.events)


@pytest.mark.parametrize("verdict", [succeed, fail])
def test_the_verdict_is_told_again(verdict: Callable[[View, str, str], Plan]) -> None:
    scene = a_run().running()
    plan = verdict(scene.view, "ForAReason", "in words")
    assert retold_after(scene, plan) == list(plan.events)
