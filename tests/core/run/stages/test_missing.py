"""What a gang that is not whole waits for: told by the condition WorkersReady, acted on in time."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run, a_worker, seconds
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import (
    CreateWorker,
    DeleteWorker,
    Event,
    Pending,
    PendingKind,
    Refused,
    RefusedReason,
    WorkerLoss,
)

NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
GATE = "it waits for its scheduling gates to be removed: example.com/approved"
NO_IMAGE = "container worker: ImagePullBackOff: image train:2 not found"
NO_SECRET = 'container worker: CreateContainerConfigError: secret "s3" not found'
QUOTA = 'pods "run-1-1" is forbidden: exceeded quota: gpus, used: 4, limited: 4'


def waiting(
    scene: WorkerObservation, slot: int, kind: PendingKind, message: str, since: float
) -> WorkerObservation:
    fact = Pending(kind=kind, message=message, since=seconds(since))
    pending = a_worker(slot, phase="Pending", agent=None, age=seconds(since), pending=fact, node="")
    return scene.without(slot).plus(pending)


def refused(
    scene: WorkerObservation, slot: int, reason: RefusedReason, message: str, since: float = 20
) -> WorkerObservation:
    fact = Refused(
        slot=slot,
        name=f"run-{slot}-1",
        reason=reason,
        message=message,
        since=seconds(since),
    )
    return scene.without(slot).refusing(fact)


def told(scene: WorkerObservation, kind: str = "WorkersReady") -> tuple[str, str, str]:
    found = scene.plan.status.condition(kind)
    assert found is not None
    return found.status, found.reason, found.message


def created(scene: WorkerObservation) -> list[str]:
    return [a.name for a in scene.plan.actions if isinstance(a, CreateWorker)]


# ---------------------------------------------------------------------------- told


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Unschedulable", NO_GPU),
        ("SchedulingGated", GATE),
        ("ImagePull", NO_IMAGE),
        ("ConfigError", NO_SECRET),
    ],
)
def test_what_a_worker_lacks_is_told_once_in_the_words_of_the_cluster(
    kind: PendingKind, message: str
) -> None:
    scene = waiting(a_run(replicas=3).waiting(), 2, kind, message, since=11)
    text = f"1 of 3 workers waiting: run-2-1: {message}"
    assert told(scene) == ("False", kind, text)
    assert told(scene, "Running") == ("False", "Pending", text)
    assert scene.plan.status.reason == kind
    assert scene.plan.transition
    assert scene.plan.events == (Event(type="Warning", reason=kind, message=text),)
    later = scene.after(scene.plan, passed=5)
    assert not later.plan.transition
    assert later.plan.events == ()


def test_trouble_of_seconds_is_not_told() -> None:
    scene = waiting(a_run().waiting(), 1, "Unschedulable", NO_GPU, since=10)
    assert told(scene) == ("False", "Gathering", "waiting for the worker of slot 1")
    assert not scene.plan.transition


def test_a_worker_on_its_way_is_shown_but_no_event() -> None:
    scene = waiting(a_run().waiting(), 1, "Starting", "its containers are being started", since=2)
    assert told(scene) == (
        "False",
        "Starting",
        "1 of 2 workers being started: run-1-1: its containers are being started",
    )
    assert scene.plan.events == ()


def test_the_worst_trouble_of_several_is_told() -> None:
    scene = waiting(a_run(replicas=4).waiting(), 1, "Unschedulable", NO_GPU, since=99)
    scene = waiting(scene, 2, "ConfigError", NO_SECRET, since=20)
    scene = waiting(scene, 3, "ConfigError", NO_SECRET, since=20)
    assert told(scene)[2] == f"2 of 4 workers waiting: run-2-1: {NO_SECRET}"
    assert told(refused(scene, 0, "QuotaExceeded", QUOTA))[1:] == (
        "QuotaExceeded",
        f"1 of 4 workers cannot be created: {QUOTA}",
    )


def test_a_gang_that_is_whole_says_so_and_keeps_saying_it_while_it_runs() -> None:
    scene = a_run().waiting()
    assert told(scene) == ("True", "Gathered", "2 of 2 workers there")
    started = scene.after().resolved()
    assert told(started)[0] == "True"
    running = started.after().with_all(attempt=1, phase="Running")
    assert (running.plan.reason, told(running)[0]) == ("Running", "True")
    assert running.plan.status.reason == ""


def test_a_suspended_run_has_no_workers_and_says_why() -> None:
    scene = a_run(suspend=True).running().ended(kind="Suspend")
    assert told(scene) == ("False", "Suspended", "spec.suspend is true")


# ---------------------------------------------------------------------------- refused


@pytest.mark.case("nodes", "A quota or an admission policy refuses workers")
@pytest.mark.parametrize("reason", ["QuotaExceeded", "Forbidden"])
def test_a_refused_worker_is_asked_for_again_for_ever(reason: RefusedReason) -> None:
    scene = refused(a_run().waiting(), 1, reason, QUOTA, since=1e6)
    scene = scene.with_config(placement_timeout=seconds(1e9))
    assert told(scene)[:2] == ("False", reason)
    assert [e.reason for e in scene.plan.events] == [reason]
    assert created(scene.after(scene.plan)) == ["run-1-1"]


def test_a_server_that_cannot_be_reached_is_no_event_of_the_run() -> None:
    scene = refused(a_run().waiting(), 1, "Unavailable", "connection refused")
    assert told(scene)[:2] == ("False", "Unavailable")
    assert scene.plan.events == ()


def test_a_refusal_of_a_slot_that_has_a_worker_by_now_is_no_news() -> None:
    scene = (
        a_run()
        .waiting()
        .refusing(
            Refused(slot=1, name="run-1-1", reason="Forbidden", message="no", since=seconds(99)),
            Refused(slot=7, name="run-7-1", reason="Forbidden", message="no", since=seconds(99)),
        )
    )
    assert told(scene)[0] == "True"


def test_a_name_that_somebody_else_has_taken_is_left_to_them() -> None:
    scene = refused(a_run().waiting(), 1, "NameTaken", "pod run-1-1 belongs to nobody here")
    scene = scene.after(scene.plan)
    assert created(scene) == ["run-1-2"]


INVALID = 'Pod "run-0-1" is invalid: spec.containers[0].image: Required value'


@pytest.mark.case("nodes", "The API server calls the template invalid", counted="a new run fails")
def test_a_template_that_the_server_refuses_fails_a_new_run_after_a_moment() -> None:
    scene = refused(a_run(replicas=1), 0, "Invalid", INVALID, since=1)
    assert told(scene, "TemplateValid") == ("False", "InvalidTemplate", INVALID)
    assert [(e.type, e.reason, e.message) for e in scene.plan.events] == [
        ("Warning", "InvalidTemplate", INVALID)
    ]
    assert not refused(a_run(replicas=1), 0, "Invalid", INVALID, since=10).plan.status.finished
    plan = refused(a_run(replicas=1), 0, "Invalid", INVALID, since=11).plan
    assert (plan.reason, plan.status.phase) == ("InvalidTemplate", "Failed")
    assert plan.message == f"the API server refuses pods made from workers.template: {INVALID}"
    assert plan.status.failures.counted == 0


def test_a_run_that_has_trained_waits_for_a_better_template() -> None:
    scene = a_run(replicas=1).running().ended(kind="TemplateChange")
    scene = refused(scene, 0, "Invalid", INVALID, since=1e6)
    assert scene.plan.status.phase == "Restarting"
    assert told(scene)[1] == "Invalid"


def test_a_template_from_which_workers_were_made_is_valid() -> None:
    assert told(a_run().waiting(), "TemplateValid") == (
        "True",
        "Accepted",
        "workers were made from it",
    )
    other = a_run(template_hash="t2").waiting()
    assert other.plan.status.condition("TemplateValid") is None


# ---------------------------------------------------------------------------- deadlines


@pytest.mark.case("nodes", "There is no room for any worker")
def test_waiting_for_room_is_never_counted() -> None:
    scene = waiting(a_run(replicas=1), 0, "Unschedulable", NO_GPU, since=1e6)
    scene = scene.after(scene.plan)
    assert scene.plan.reason == "Gathering"
    assert scene.plan.status.failures.text == "0/0"


@pytest.mark.case(
    "nodes", "An image, a Secret, a ConfigMap or a volume is missing", counted="maxStartFailures"
)
@pytest.mark.parametrize(("kind", "message"), [("ImagePull", NO_IMAGE), ("ConfigError", NO_SECRET)])
def test_what_stays_missing_for_the_start_timeout_is_a_failed_start(
    kind: PendingKind, message: str
) -> None:
    scene = a_run(replicas=1, max_failures=1).after()
    patient = waiting(scene, 0, kind, message, since=300)
    assert patient.after(patient.plan).plan.reason == "Gathering"
    failed = waiting(scene, 0, kind, message, since=301)
    plan = failed.plan
    assert plan.reason == "StartFailed"
    assert plan.message == (
        "attempt 1 could not start: worker run-0-1 has not started within health.startTimeout "
        f"(300 s): {message}"
    )
    after = failed.after(plan, passed=1)
    after = after.after(after.plan)
    assert created(after) == ["run-0-2"]
    assert [(a.name, a.reason) for a in after.plan.actions if isinstance(a, DeleteWorker)] == [
        ("run-0-1", message)
    ]


def test_an_init_container_that_fails_is_named() -> None:

    loss = WorkerLoss(cause=Cause.START_FAILED, message="init container fetch failed (exit code 3)")
    dead = [
        a_worker(0, number, phase="Ended", agent=None, age=seconds(1), loss=loss)
        for number in (1, 2, 3)
    ]
    plan = a_run(replicas=1).plus(*dead).plan
    assert plan.message == (
        "attempt 1 could not start: worker run-0-3 is number 3 of slot 0 that ended before it took "
        "part: init container fetch failed (exit code 3)"
    )
