"""A call of the store that never comes back holds nobody up for ever."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run, a_worker, seconds
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker

GONE_QUIET = "worker run-0-1 has had no answer from the store for 300 s; another worker is tried"


def asking(number: float, **config: object) -> WorkerObservation:
    """Slot 0 was asked to resolve so many seconds ago."""
    scene = a_run(**config).waiting()
    return scene.after(scene.plan, passed=number)


def actions(scene: WorkerObservation) -> list[str]:
    return [
        f"{type(a).__name__} {a.name}"
        for a in scene.plan.actions
        if isinstance(a, CreateWorker | DeleteWorker)
    ]


def test_slot_0_has_the_start_timeout_to_resolve() -> None:
    assert asking(300).plan.reason == "Resolving"


@pytest.mark.case("storage", "A call to the store hangs, or one worker alone does not reach it")
def test_a_worker_that_does_not_resolve_is_replaced_and_the_store_is_named() -> None:
    scene = asking(301)
    plan = scene.plan
    assert (plan.reason, plan.message, plan.transition) == ("StorageUnavailable", GONE_QUIET, True)
    assert [(e.type, e.reason, e.message) for e in plan.events] == [
        ("Warning", "StorageUnavailable", GONE_QUIET)
    ]
    scene = scene.after(plan)
    assert actions(scene) == ["DeleteWorker run-0-1", "CreateWorker run-0-2"]
    assert [a.reason for a in scene.plan.actions if isinstance(a, DeleteWorker)] == [
        "its agent gets no answer from the store"
    ]
    assert scene.plan.status.failures.text == "0/0"
    newer = (
        scene.after(scene.plan).with_worker(0, deleting=True).plus(a_worker(0, 2, age=seconds(1)))
    )
    assert newer.plan.reason == "Resolving"


def test_a_first_start_that_hangs_again_fails_the_run() -> None:
    scene = asking(301)
    scene = scene.after(scene.plan).without(0).plus(a_worker(0, 2))
    scene = scene.after(scene.plan, passed=302)
    assert (scene.plan.reason, scene.plan.status.phase) == ("StorageUnavailable", "Failed")


def test_a_run_that_has_trained_is_given_an_hour() -> None:
    scene = asking(301).with_status(attempt=1)
    scene = scene.after(scene.plan, passed=3600)
    assert scene.plan.status.phase == "Pending"
    assert scene.after(scene.plan, passed=1).plan.status.phase == "Failed"


def test_a_store_that_answers_is_waited_for_as_long_as_it_asks_for() -> None:
    scene = asking(3000).resolved(outcome="InUse", message="another run owns it")
    assert scene.plan.reason == "StorageInUse"


def test_a_port_that_is_never_offered_is_the_same() -> None:
    scene = asking(301)
    assert scene.resolved(offer=False, age=299.0).plan.reason == "Barrier"
    assert scene.resolved(offer=False, age=301.0).plan.reason == "StorageUnavailable"


def test_after_an_answer_for_an_older_attempt_the_time_begins_anew() -> None:
    scene = asking(3000).resolved(outcome="Behind", highest_attempt=7, age=1.0)
    assert scene.after(scene.plan).with_agent(0, phase="Idle").plan.reason == "Resolving"


def test_a_restart_begins_the_time_anew() -> None:
    scene = a_run(max_failures=3).waiting()
    scene = scene.after(scene.plan).running()
    late = scene.ended(ago=330).with_all(phase="Idle")
    assert late.plan.reason == "Resolving"
    assert scene.ended(ago=331).with_condition("WorkersReady", "True", "Gathered", ago=900).plan


def test_the_backoff_is_not_the_store_s_fault() -> None:
    scene = a_run(max_failures=3).waiting()
    scene = scene.after(scene.plan, passed=900).running()
    now = scene.now
    recent = scene.ended(ago=900, not_before=now - seconds(300))
    assert recent.plan.reason == "Resolving"
    assert scene.ended(ago=900, not_before=now - seconds(331)).plan.reason == "StorageUnavailable"


def test_other_slots_ask_nothing_of_the_store() -> None:
    scene = asking(301).with_worker(0, age=seconds(1))
    assert scene.plan.reason == "Resolving"


def test_a_worker_that_still_uploads_is_not_asked_yet() -> None:
    scene = asking(301).with_agent(0, phase="Flushing")
    assert scene.plan.reason == "Gathering"
