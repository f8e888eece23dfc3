"""What GitOps tools see of a run: kstatus's rules over its status."""

from __future__ import annotations

from dataclasses import replace

from tests.support.builders import WorkerObservation, a_new_run, a_run, an_incident, seconds
from tests.support.kstatus import kstatus
from trainrun_operator.api.run.status import json_object
from trainrun_operator.core.run.boundary import Plan, Refused
from trainrun_operator.core.run.planner import decide


def seen(scene: WorkerObservation, plan: Plan | None = None) -> tuple[str, str]:
    """What such a tool says of the run once the plan is written."""
    status = (plan or scene.plan).status
    return kstatus({"metadata": {"generation": scene.generation}, "status": json_object(status)})


def test_a_run_is_in_progress_until_its_first_attempt_trains() -> None:
    scene = a_new_run()
    assert seen(scene) == ("InProgress", "waiting for the first workers")
    assert seen(scene.after(scene.plan))[0] == "InProgress"
    assert seen(a_run().running())[0] == "Current"


def test_a_failed_run_is_not_healthy_and_says_why() -> None:
    scene = a_run(max_failures=0).running().ended(an_incident())
    word, message = seen(scene)
    assert (word, scene.plan.status.phase) == ("Failed", "Failed")
    assert message.startswith("rank 0 exited with code 1: ValueError: bad batch (AppError)")
    later = scene.after(scene.plan)
    assert seen(later) == (word, message)
    assert not later.plan.transition, "it is no event, and rests"


def test_a_failed_run_that_an_edit_does_not_help_stays_failed_of_the_new_generation() -> None:
    scene = a_run(max_failures=0).running().ended(an_incident())
    edited = scene.after(scene.plan).edited(template_hash="t2")
    assert edited.plan.status.observed_generation == edited.generation == 2
    assert seen(edited)[0] == "Failed"


def test_a_failed_run_that_goes_on_is_in_progress_again() -> None:
    scene = a_run(max_failures=0).running().ended(an_incident())
    edited = scene.after(scene.plan).edited(max_failures=3)
    assert seen(edited)[0] == "InProgress"
    assert seen(edited.after(edited.plan))[0] == "InProgress"


def test_a_run_that_has_succeeded_or_is_suspended_is_as_its_spec_asks() -> None:
    done = a_run().running().all_done()
    assert seen(done)[0] == "Current"
    assert seen(done.after(done.plan))[0] == "Current"
    saving = a_run().running().edited(suspend=True)
    assert seen(saving)[0] == "InProgress"
    empty = replace(a_run(suspend=True), workers=())
    assert (empty.plan.status.phase, seen(empty)[0]) == ("Suspended", "Current")


def test_an_edit_of_the_template_is_in_progress_until_its_workers_train() -> None:
    scene = a_run().running().edited(template_hash="t2")
    assert seen(scene)[0] == "InProgress"
    assert seen(scene.after(scene.plan))[0] == "InProgress"


def test_what_is_waited_for_is_told_with_its_reason() -> None:
    refusal = Refused(
        slot=0, name="run-0-1", reason="QuotaExceeded", message="no GPUs left", since=seconds(30)
    )
    scene = a_run().refusing(refusal)
    found = scene.plan.status.condition("Reconciling")
    assert found is not None
    assert "no GPUs left" in found.message, found


def test_a_template_that_cannot_be_used_needs_its_user_and_an_edit_may_help() -> None:
    scene = a_run().running().edited(launch_problem="no command", template_hash="t2")
    assert (seen(scene)[0], seen(scene)[1]) == ("Failed", "no command")
    assert scene.plan.status.phase == "Running", "what trains goes on"
    mended = scene.after(scene.plan).edited(launch_problem="", template_hash="t3")
    assert seen(mended)[0] == "InProgress"


def test_an_object_that_is_too_large_to_be_read_needs_its_user() -> None:
    scene = a_run().running()
    large = replace(scene.observation, too_large="it has 600 KiB", generation=2)
    plan = decide(large, scene.config)
    assert seen(replace(scene, generation=2), plan) == ("Failed", "it has 600 KiB")


def test_an_edit_that_cannot_be_read_needs_its_user_while_what_runs_goes_on() -> None:
    scene = a_run().running()
    broken = replace(scene.observation, invalid="spec.suspend: ...", generation=2)
    plan = decide(broken, scene.config)
    assert seen(replace(scene, generation=2), plan) == ("Failed", "spec.suspend: ...")
    stalled = plan.status.condition("Stalled")
    assert stalled is not None
    assert (stalled.reason, plan.status.phase, plan.events) == ("InvalidSpec", "Running", ())


def test_nothing_of_it_is_told_as_an_event() -> None:
    scene = a_run().running()
    failed = scene.ended(an_incident()).with_config(max_failures=0)
    told = {event.reason for it in (a_new_run(), scene, failed) for event in it.plan.events}
    assert told.isdisjoint({"Reconciling", "Stalled"})
