"""A command that cannot be run: no worker is made for it, none is taken from a run that trains."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run
from trainrun_operator.api.run.status import Condition

PROBLEM = "the command of container worker cannot be run: torchrun: --nnodes is 4"


def mark(scene: WorkerObservation) -> tuple[str, str, str]:
    found: Condition | None = scene.plan.status.condition("TemplateValid")
    assert found is not None
    return found.status, found.reason, found.message


@pytest.mark.case(
    "nodes", "The command starts a launcher that TrainRun cannot replace", counted="a new run fails"
)
@pytest.mark.case(
    "nodes",
    "The template has several containers, and none is called worker",
    counted="a new run fails",
)
def test_a_new_run_fails_before_any_worker_is_made() -> None:
    scene = a_run(launch_problem=PROBLEM).with_status(start_time=a_run().now)
    plan = scene.plan
    assert (plan.reason, plan.status.phase) == ("InvalidTemplate", "Failed")
    assert plan.message == f"workers.template: {PROBLEM}"
    assert plan.actions == ()
    assert plan.status.failures.counted == 0
    assert mark(scene) == ("False", "InvalidTemplate", PROBLEM)


def test_a_run_that_trains_goes_on_when_its_template_is_edited_into_such_a_command() -> None:
    edited = {"launch_problem": PROBLEM, "template_hash": "t2"}
    scene = a_run().running().with_config(**edited)
    told = scene.plan
    assert told.transition
    assert [(e.type, e.reason, e.message) for e in told.events] == [
        ("Warning", "InvalidTemplate", PROBLEM)
    ]
    after = scene.after(told)
    assert after.plan.reason == "Running"
    assert after.plan.actions == ()
    assert mark(after) == ("False", "InvalidTemplate", PROBLEM)


def test_a_run_that_has_trained_keeps_its_workers_until_the_command_is_mended() -> None:
    edited = {"launch_problem": PROBLEM, "template_hash": "t2"}
    scene = a_run(max_failures=3).running().with_exit(0)
    scene = scene.after(scene.plan).with_all(phase="Idle").with_config(**edited)
    scene = scene.after(scene.plan)
    assert (scene.plan.reason, scene.plan.actions) == ("InvalidTemplate", ())
    assert scene.plan.message == f"workers.template: {PROBLEM}"
    mended = scene.with_config(launch_problem="", template_hash="t1")
    assert mended.plan.reason != "InvalidTemplate"


def test_a_command_that_would_start_another_number_of_processes_is_not_taken() -> None:
    """torchrun's --nproc-per-node was edited: the size of a run is fixed."""
    edited = {"processes_per_worker": 4, "template_hash": "t2"}
    scene = a_run(replicas=2).running().with_config(**edited)
    scene = scene.after(scene.plan)
    assert scene.plan.reason == "Running"
    assert mark(scene) == (
        "False",
        "InvalidTemplate",
        "its command starts 8 processes, and the run has 2: the size of a run is fixed",
    )
