"""What we delete ourselves is named in the status first, and explains no incident."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run, an_incident, seconds
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker, WorkerLoss


def deleted(scene: WorkerObservation) -> list[str]:
    return [a.name for a in scene.plan.actions if isinstance(a, DeleteWorker)]


def a_crash_and_then_a_new_template() -> WorkerObservation:
    scene = a_run(replicas=3, max_failures=3, max_preemptions=0).running()
    broken = an_incident(message="connection reset", collateral=True, time=scene.now - seconds(1))
    return scene.ended(broken).with_config(template_hash="t2")


def test_a_deletion_is_named_before_it_happens() -> None:
    scene = a_crash_and_then_a_new_template()
    plan = scene.plan
    assert (plan.transition, plan.actions, plan.events) == (True, (), ())
    assert plan.status.ending is not None
    assert [plan.status.ending.has_dismissed(slot) for slot in range(4)] == [True] * 3 + [False]
    then = scene.after(plan)
    assert deleted(then) == ["run-0-1", "run-1-1", "run-2-1"]
    assert not then.plan.transition


@pytest.mark.case(
    "nodes", "After a failure the template is edited or a survivor is lost", counted="its cause"
)
def test_what_becomes_of_deleted_workers_changes_no_cause() -> None:
    """SIGTERM, a notice, an end, and a worker that is gone: seen by whoever leads now."""
    scene = a_crash_and_then_a_new_template()
    scene = scene.after(scene.plan).noticed(0).with_worker(0, deleting=True)
    scene = scene.noticed(1).with_worker(1, deleting=True, phase="Ended", exit_code=143)
    scene = scene.without(2).listening(1)
    assert scene.plan.reason == "Gathering"
    incident = scene.plan.status.incident
    assert incident is not None
    assert (incident.cause, incident.collateral) == ("AppError", True)


def test_a_worker_that_somebody_else_deleted_explains_the_broken_collectives_of_its_peers() -> None:
    scene = a_crash_and_then_a_new_template().with_config(template_hash="t1", max_preemptions=1)
    scene = scene.without(2)
    assert scene.plan.reason == "Preempted"
    assert scene.plan.message == (
        "attempt 1 ended for another reason: Preempted: worker run-2-1 was deleted or replaced "
        "from outside"
    )


def test_workers_of_a_dead_node_are_named_with_the_incident_so_that_nothing_waits() -> None:
    loss = WorkerLoss(cause=Cause.NODE_LOST, message="it is switched off", unreachable=True)
    scene = a_run(replicas=3, max_failures=3).running().with_worker(1, loss=loss)
    plan = scene.plan
    assert plan.status.ending is not None
    assert [plan.status.ending.has_dismissed(slot) for slot in range(3)] == [False, True, False]
    then = scene.after(plan).plan
    assert not then.transition
    actions = [a.name for a in then.actions if isinstance(a, CreateWorker | DeleteWorker)]
    assert actions == ["run-1-1", "run-1-2"]


def test_deletions_that_no_incident_can_be_blamed_on_are_not_named() -> None:
    scene = a_run().running().ended(kind="TemplateChange").with_config(template_hash="t2")
    assert deleted(scene) == ["run-0-1", "run-1-1"]


def test_all_slots_of_the_largest_gang_fit_into_256_characters() -> None:
    ending = a_run().running().ended(an_incident()).status.ending
    assert ending is not None
    assert len(ending.dismissing(range(1024))) == 256
