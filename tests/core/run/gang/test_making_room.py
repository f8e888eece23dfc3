"""Ended workers in whose place others are refused, since a quota counts them as well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.run.gang.test_roster import created, deleted
from tests.core.run.stages.test_missing import told
from tests.support.builders import WorkerObservation, a_run, a_worker, an_incident, seconds
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import Refused, RefusedReason, WorkerLoss

QUOTA = (
    'pods "run-1-5" is forbidden: exceeded quota: small, requested: count/pods=1, '
    "used: count/pods=3, limited: count/pods=3"
)
WHY = "a quota on count/pods, which includes ended pods, refuses another worker"


def refused(
    *slots: int, since: float = 4, message: str = QUOTA, reason: RefusedReason = "QuotaExceeded"
) -> tuple[Refused, ...]:
    return tuple(
        Refused(
            slot=slot,
            name=f"run-{slot}-5",
            reason=reason,
            message=message,
            since=seconds(since),
        )
        for slot in slots
    )


def one_lost(*, retain: int = 2) -> WorkerObservation:
    """Attempt 4 has ended with worker 1; two ended workers are kept for their logs."""
    scene = a_run(replicas=2).running(4).with_config(retain_failed_workers=retain, max_failures=9)
    scene = scene.ended(an_incident(attempt=4)).lost(1, Cause.OUT_OF_MEMORY)
    scene = scene.plus(*(a_worker(0, number, phase="Ended", agent=None) for number in (3, 2)))
    return scene.after(scene.plan, passed=5)


def settled(scene: WorkerObservation) -> WorkerObservation:
    """What is to be told first has been written."""
    return scene.after(scene.plan) if scene.plan.transition else scene


def names(scene: WorkerObservation) -> list[str]:
    return [name for name, reason in deleted(settled(scene)) if reason == WHY]


@pytest.mark.case("nodes", "Ended pods use up a quota on count/pods")
def test_where_a_quota_counts_ended_pods_the_oldest_one_makes_room() -> None:
    """The ended worker took the place of its own replacement, for ever."""
    scene = one_lost()
    assert deleted(settled(scene)) == []
    assert names(scene.refusing(*refused(1))) == ["run-0-2"]
    assert created(settled(scene.refusing(*refused(1)))) == ["run-1-5"]
    three = scene.refusing(*refused(1), *refused(2), *refused(3))
    assert names(three) == ["run-0-2", "run-0-3", "run-1-1"], "what ended last is kept longest"


def test_the_worker_that_is_replaced_makes_room_itself_where_no_older_one_is_kept() -> None:
    """`retainFailedWorkers: 0` did not help."""
    scene = a_run(replicas=2).running().ended().lost(1, Cause.OUT_OF_MEMORY)
    scene = scene.with_config(retain_failed_workers=0)
    assert deleted(scene) == []
    scene = scene.refusing(*refused(1))
    assert deleted(scene) == [("run-1-1", WHY)]
    assert created(scene.without(1)) == ["run-1-2"], "the number is not used again"


@pytest.mark.parametrize(
    "answer",
    [
        refused(1, since=2),
        refused(1, message=QUOTA.replace("count/pods", "requests.nvidia.com/gpu")),
        refused(1, message="no count/pods for you", reason="Forbidden"),
    ],
    ids=["it may pass", "another resource", "no quota"],
)
def test_logs_are_kept_where_their_pods_are_not_in_the_way(answer: tuple[Refused, ...]) -> None:
    assert deleted(settled(one_lost().refusing(*answer))) == []


def test_a_place_that_is_about_to_be_free_costs_no_logs() -> None:
    scene = one_lost().refusing(*refused(1))
    assert names(scene.plus(a_worker(0, 1, phase="Ended", agent=None, deleting=True))) == []
    beyond = one_lost(retain=1).refusing(*refused(1))
    assert deleted(settled(beyond)) == [
        ("run-0-2", "its logs are no longer kept (retainFailedWorkers)")
    ], "deleted anyway, and once"


def ended_before_it_joined(
    scene: WorkerObservation, number: int, cause: Cause | None = None
) -> WorkerObservation:
    """The worker of slot 1 that was made for the next attempt; a quota refuses another one."""
    scene = scene.plus(a_worker(1, number, phase="Ended", agent=None, age=seconds(0.5)))
    if cause is not None:
        loss = WorkerLoss(cause=cause, message="the node was low on memory")
        scene = replace(scene, workers=(*scene.workers[:-1], replace(scene.workers[-1], loss=loss)))
    return scene.refusing(*refused(1))


@pytest.mark.parametrize("attempt", [0, 4])
def test_a_worker_that_ended_before_it_joined_makes_room_for_its_replacement(attempt: int) -> None:
    """It stood in the way, for ever. An operator that has seen nothing of it counts it as well, and
    does not use its number again."""
    scene = a_run(replicas=2).with_config(max_failures=9)
    scene = scene.running(attempt).ended().without(1) if attempt else scene
    for number in (attempt + 1, attempt + 2):
        scene = ended_before_it_joined(scene, number)
        plan = scene.plan
        assert (plan.reason, plan.status.attempt, plan.actions) == ("AttemptSkipped", number, ())
        assert plan.status.failures.counted == 0
        scene = scene.after(plan, passed=1)
        assert deleted(scene) == [(f"run-1-{number}", WHY)]
        scene = scene.without(1).refusing()
        assert created(scene)[-1] == f"run-1-{number + 1}"
    plan = ended_before_it_joined(scene, attempt + 3).plan
    assert plan.reason == "StartFailed"
    assert f"run-1-{attempt + 3} is number 3 of slot 1 that ended before" in plan.message
    assert plan.status.failed_starts == {}, "counted as an incident"


def test_logs_of_earlier_attempts_make_room_before_a_worker_that_never_joined() -> None:
    scene = ended_before_it_joined(settled(one_lost()), 5)
    assert names(scene) == ["run-0-2"]
    assert scene.plan.reason == "Gathering"


def test_an_evicted_worker_that_never_joined_makes_room_and_is_no_failed_start() -> None:
    plan = ended_before_it_joined(a_run(replicas=2).running(4).ended(), 5, Cause.EVICTED).plan
    assert (plan.reason, plan.status.attempt) == ("AttemptSkipped", 5)
    assert plan.status.failed_starts == {}


def test_what_the_quota_counts_is_said_with_the_remedy() -> None:
    status, reason, message = told(one_lost().refusing(*refused(1, since=11)))
    assert (status, reason) == ("False", "QuotaExceeded")
    assert message == (
        f"1 of 2 workers cannot be created: {QUOTA}; ended pods count, too: those of this run are "
        "deleted, the oldest first; delete finished runs, or set their spec.ttlAfterFinished"
    )
