"""Workers that were made from a spec which has been edited since are replaced, all at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import WorkerObservation, a_run, an_incident
from trainrun.contract.agent_config import StorageConfig
from trainrun_operator.core.run.boundary import CreateWorker, DeleteWorker

OLD = StorageConfig(
    uri="s3://bucket", run_name="run", endpoint_url="http://old", region="eu-1", credentials="keys"
)


def of_one_storage(scene: WorkerObservation) -> WorkerObservation:
    """All workers were made with OLD, as the spec has it."""
    return of_storage(scene.with_config(storage=OLD), OLD)


def of_storage(scene: WorkerObservation, made: StorageConfig | None) -> WorkerObservation:
    for slot in range(scene.config.replicas):
        scene = scene.with_worker(slot, storage=made)
    return scene


def edited(scene: WorkerObservation, **fields: str) -> WorkerObservation:
    return scene.with_config(storage=replace(OLD, **fields))


EDITS = [
    ({"endpoint_url": "http://new"}, "storage.endpointURL"),
    ({"region": "eu-2"}, "storage.region"),
    ({"credentials": "others"}, "storage.credentialsSecretRef"),
    ({"credentials": ""}, "storage.credentialsSecretRef"),
]


@pytest.mark.parametrize(("fields", "field"), EDITS)
def test_an_edit_of_the_storage_replaces_the_gang_after_a_save_and_names_the_field(
    fields: dict[str, str], field: str
) -> None:
    scene = edited(of_one_storage(a_run().running()), **fields)
    assert scene.plan.message == f"asking the training for a checkpoint: {field} has changed"
    scene = scene.after(scene.plan)
    for slot in (0, 1):
        scene = scene.voted(slot, calls=12, committed=12)
    plan = scene.staged_by_all(12, after_save=True).plan
    assert (plan.reason, plan.message) == (
        "TemplateChanged",
        f"{field} has changed: saved step 12 or later; all workers are recreated",
    )
    after = scene.after(plan).with_all(phase="Idle", staged=())
    gone = [a for a in after.plan.actions if isinstance(a, DeleteWorker)]
    assert [(a.name, a.reason) for a in gone] == [
        ("run-0-1", f"{field} has changed"),
        ("run-1-1", f"{field} has changed"),
    ]
    made = [a.name for a in after.plan.actions if isinstance(a, CreateWorker)]
    assert made == ["run-0-2", "run-1-2"]
    assert (after.plan.status.incident, after.plan.status.incidents) == (None, ())


def test_a_gang_of_two_storages_is_not_started() -> None:
    """One worker was replaced while the spec was being edited."""
    scene = of_one_storage(a_run(max_failures=1).running().ended(an_incident()))
    new = replace(OLD, region="eu-2")
    scene = scene.with_config(storage=new).with_worker(1, storage=new).without_backoff()
    assert scene.resolved().plan.reason == "Gathering"
    scene = scene.after(scene.plan)  # says whom it deletes
    made = [a.name for a in scene.plan.actions if isinstance(a, CreateWorker)]
    assert made == ["run-0-2"]


def test_an_edit_that_is_taken_back_is_no_reason_any_more() -> None:
    scene = edited(of_one_storage(a_run().running()), region="eu-2")
    scene = scene.after(scene.plan).with_config(storage=OLD)
    assert scene.plan.reason == "SaveWithdrawn"


def test_a_worker_of_which_the_storage_is_not_known_is_kept() -> None:
    scene = edited(of_storage(a_run().running(), None), region="eu-2")
    assert scene.plan.reason == "Running"


def test_every_agent_is_told_the_settings_of_now() -> None:
    running = a_run(max_failures=1).running().with_config(max_pending=7, keep=9)
    gathering = running.ended(an_incident())
    for scene in (running, gathering):
        for slot in (0, 1):
            told = scene.answer(slot).settings
            assert told is not None
            assert (told.max_pending, told.keep) == (7, 9)
            assert (told.heartbeat_timeout, told.flush_timeout) == (30.0, 30.0)
