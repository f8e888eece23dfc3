"""A run is led by one installation of the operator; others leave it alone, or take it over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import HOUR, WorkerObservation, a_new_run, a_run, an_incident, seconds
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import CreateWorker, DeleteRun, Installation
from trainrun_operator.core.run.display import CONTESTED

OURS = Installation(name="ml", key="k1")
HEIR = Installation(name="ml", key="k1", adopts=frozenset({"old"}))


def moved(scene: WorkerObservation, *, held_by: str = "old/k0") -> WorkerObservation:
    """Seen by who adopts it, and to whom its workers are strangers."""
    return replace(scene.seen_by(HEIR, held_by=held_by), workers=())


def settled(scene: WorkerObservation) -> WorkerObservation:
    """Once all that is to be written first is written."""
    while scene.plan.transition:
        scene = scene.after(scene.plan)
    return scene


def test_a_new_run_is_claimed_by_the_write_that_accepts_it() -> None:
    plan = a_new_run().seen_by(OURS).plan
    assert (plan.reason, plan.transition) == ("Accepted", True)
    assert plan.status.holder == "ml/k1"
    assert plan.status.taken_over is None


def test_a_run_of_a_version_that_knew_no_installations_is_claimed_and_goes_on() -> None:
    scene = a_run().running().seen_by(OURS)
    plan = scene.plan
    assert (plan.transition, plan.actions, plan.answers) == (True, (), {})
    assert plan.status.holder == "ml/k1"
    after = scene.after(plan)
    assert after.plan.reason == "Running"
    assert not after.plan.transition
    assert len(after.plan.answers) == 2
    assert after.status.ending is None


def test_one_machine_needs_no_name() -> None:
    assert a_new_run().plan.status.holder == ""


@pytest.mark.case("operator", "Two installations of the operator watch one namespace")
@pytest.mark.parametrize(
    "scene",
    [
        a_new_run(),
        a_run().waiting(),
        a_run().running(),
        a_run().running().with_exit(1),
        a_run(suspend=True).running(),
        a_run(ttl_after_finished=seconds(0)).with_condition("Failed", "True", "X", ago=60),
    ],
    ids=["new", "gathering", "running", "a crash", "to suspend", "to delete"],
)
def test_a_run_of_another_installation_is_left_alone(scene: WorkerObservation) -> None:
    scene = scene.seen_by(OURS, held_by="theirs/k9")
    plan = scene.plan
    assert plan.reason == "LedElsewhere"
    assert plan.message == "the operator in namespace theirs leads this run"
    assert (plan.transition, plan.actions, plan.answers, plan.events) == (False, (), {}, ())
    assert plan.status == scene.status


@pytest.mark.case("operator", "The operator moves to another namespace, or its CA Secret is lost")
def test_a_gang_is_made_anew_by_who_adopts_its_run_and_nothing_is_counted() -> None:
    scene = moved(a_run(max_failures=0).running())
    plan = scene.plan
    assert [(e.type, e.reason, e.message) for e in plan.events] == [
        (
            "Normal",
            "TakenOver",
            "taken over from the operator in namespace old: the gang is recreated",
        )
    ]
    assert plan.status.holder == "ml/k1"
    assert plan.status.taken_over == scene.now
    after = settled(scene)
    created = [action.name for action in after.plan.actions if isinstance(action, CreateWorker)]
    assert created == ["run-0-2", "run-1-2"]
    assert after.status.failures.counted == after.status.failures.preemptions == 0
    assert after.status.incident is None


def test_a_run_that_was_taken_over_is_contested_no_longer() -> None:
    scene = moved(a_run().running()).with_condition(CONTESTED, "True", "OtherInstallation", ago=5)
    assert scene.plan.status.condition(CONTESTED) is None


def test_who_has_lost_its_key_makes_the_gang_anew_as_well() -> None:
    scene = replace(a_run().running().seen_by(OURS, held_by="ml/k0"), workers=())
    assert scene.plan.reason == "TakenOver"
    ending = settled(scene).status.ending
    assert ending is not None
    assert ending.kind == "TakenOver"


def test_workers_that_are_left_behind_do_not_explain_what_had_failed() -> None:
    crashed = a_run(max_failures=1).running().ended(an_incident(Cause.APP_ERROR))
    after = settled(moved(crashed))
    assert after.status.incident is not None
    assert after.status.incident.cause == "AppError"
    assert after.status.failures.counted == 0, "it is settled when the next attempt starts"


def test_a_run_that_has_no_gang_yet_is_taken_over_without_an_ending() -> None:
    scene = moved(a_run())
    assert scene.plan.reason == "TakenOver"
    assert scene.plan.message == "taken over from the operator in namespace old"
    assert settled(scene).status.ending is None


def test_a_finished_run_of_a_former_installation_is_cleaned_up() -> None:
    finished = a_run(ttl_after_finished=seconds(0)).with_condition("Complete", "True", "X", ago=60)
    scene = moved(finished.with_status(completion_time=finished.now - HOUR))
    assert scene.plan.events == ()
    assert settled(scene).plan.actions == (DeleteRun(),)


def test_that_a_run_is_contested_is_shown_for_an_hour_after_somebody_said_so() -> None:
    scene = a_run().running().seen_by(OURS, held_by="ml/k1")
    lately = scene.with_condition(CONTESTED, "True", "OtherInstallation", ago=3599)
    assert lately.plan.status.is_true(CONTESTED)
    assert lately.plan.events == ()
    before = scene.with_condition(CONTESTED, "True", "OtherInstallation", ago=3601)
    assert not before.plan.status.is_true(CONTESTED)
    assert before.plan.events == ()
