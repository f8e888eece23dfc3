"""A gang that is half placed gives its pods back, so that two of them never block each other."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders import (
    WorkerObservation,
    a_config,
    a_run,
    a_worker,
    an_incident,
    seconds,
)
from trainrun_operator.core.run.boundary import (
    CreateWorker,
    DeleteWorker,
    Observation,
    Pending,
    Refused,
    WorkerFact,
)
from trainrun_operator.core.run.stages.placement import pause
from trainrun_operator.core.run.view import View


def homeless(slot: int, created_for: int = 1, *, since: float = 601) -> WorkerFact:
    """A worker that has found no room for so long."""
    pending = Pending(kind="Unschedulable", message="no node has a GPU", since=seconds(since))
    return a_worker(
        slot, created_for, phase="Pending", agent=None, node="", age=seconds(since), pending=pending
    )


def gated(slot: int, created_for: int = 1, *, since: float = 601) -> WorkerFact:
    """A worker that nobody looks for room for."""
    pending = Pending(kind="SchedulingGated", message="held by gate g", since=seconds(since))
    return replace(homeless(slot, created_for, since=since), pending=pending)


def half_placed(*, since: float = 601, **config: object) -> WorkerObservation:
    scene = a_run(replicas=3, **config).waiting().without(2)
    return scene.plus(homeless(2, since=since))


def deleted(scene: WorkerObservation) -> list[str]:
    return [a.name for a in scene.plan.actions if isinstance(a, DeleteWorker)]


def created(scene: WorkerObservation) -> list[str]:
    return [a.name for a in scene.plan.actions if isinstance(a, CreateWorker)]


def given_back(scene: WorkerObservation) -> WorkerObservation:
    assert scene.plan.reason == "GangNotPlaced"
    return scene.after(scene.plan)


@pytest.mark.case("nodes", "Only a part of the gang finds room")
def test_a_half_placed_gang_gives_all_its_pods_back_after_the_placement_timeout() -> None:
    plan = half_placed().plan
    held = plan.status.placement
    assert held is not None
    assert held.tries == 1
    assert plan.transition
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "GangNotPlaced")]
    assert plan.message == (
        "2 of 3 workers placed, and no room for 1 within health.placementTimeout (600 s): all pods "
        f"are given back, to be created again at {held.not_before:%H:%M:%S} UTC"
    )
    assert plan.status.failures.text == "0/0"
    scene = given_back(half_placed())
    assert deleted(scene) == ["run-0-1", "run-1-1", "run-2-1"]
    assert created(scene) == []
    assert (scene.plan.reason, scene.plan.message) == ("GangNotPlaced", plan.message)
    assert not scene.plan.transition
    mark = scene.plan.status.condition("WorkersReady")
    assert mark is not None
    assert (mark.status, mark.reason, mark.message) == ("False", "GangNotPlaced", plan.message)


def test_until_the_placement_timeout_it_waits() -> None:
    scene = half_placed(since=600)
    assert scene.after(scene.plan).plan.reason == "Gathering"


def test_a_gang_without_any_room_has_nothing_to_give_back() -> None:
    scene = a_run(replicas=2).plus(homeless(0), homeless(1))
    assert scene.after(scene.plan).plan.reason == "Gathering"


def test_pods_that_a_gate_lets_through_one_by_one_are_given_back_for_that_reason() -> None:
    """Two gangs of which a queue has admitted a part each would block each other for ever."""
    scene = a_run(replicas=3).waiting().without(2).plus(gated(2))
    plan = scene.plan
    held = plan.status.placement
    assert held is not None
    assert plan.message == (
        "2 of 3 workers placed, and 1 behind a scheduling gate after health.placementTimeout "
        f"(600 s): all pods are given back, to be created again at {held.not_before:%H:%M:%S} UTC; "
        "held by gate g"
    )
    assert plan.status.failures.text == "0/0"
    assert deleted(given_back(scene)) == ["run-0-1", "run-1-1", "run-2-1"]


@pytest.mark.case("nodes", "A scheduling gate holds back workers, e.g. Kueue's")
@pytest.mark.parametrize("since", [601, 1e6])
def test_a_gang_that_a_gate_holds_back_as_a_whole_waits_for_it(since: float) -> None:
    scene = a_run(replicas=2).plus(gated(0, since=since), gated(1, since=since))
    for _ in range(2):
        scene = scene.after(scene.plan)
        assert (deleted(scene), created(scene)) == ([], [])
    assert scene.plan.reason == "Gathering"
    mark = scene.plan.status.condition("WorkersReady")
    assert mark is not None
    assert (mark.reason, mark.message) == (
        "SchedulingGated",
        "2 of 2 workers waiting: run-0-1: held by gate g",
    )


def test_a_worker_that_is_being_started_holds_room_as_well() -> None:
    starting = Pending(kind="Starting", message="pulls its image", since=seconds(5))
    placed = a_worker(0, phase="Pending", agent=None, pending=starting)
    scene = a_run(replicas=2).plus(placed, homeless(1))
    assert scene.plan.reason == "GangNotPlaced"


def test_a_quota_that_lets_a_part_in_is_like_room_for_a_part() -> None:
    def refusal(since: float, slot: int = 1) -> Refused:
        return Refused(
            slot=slot,
            name=f"run-{slot}-1",
            reason="QuotaExceeded",
            message="exceeded quota",
            since=seconds(since),
        )

    scene = a_run(replicas=2).waiting().without(1)
    assert scene.refusing(refusal(601)).plan.reason == "GangNotPlaced"
    assert scene.refusing(refusal(600)).plan.reason != "GangNotPlaced"
    assert a_run().waiting().refusing(refusal(601), refusal(601, 9)).plan.reason == "Resolving"


def test_after_its_pause_the_gang_is_created_again_and_keeps_counting() -> None:
    scene = given_back(half_placed())
    held = scene.status.placement
    assert held is not None
    left = held.not_before - scene.now
    assert seconds(30) <= left <= seconds(60)
    assert scene.plan.requeue_after == min(left, seconds(5))
    for slot in range(3):
        scene = scene.without(slot)
    later = scene.after(scene.plan, passed=left.total_seconds())
    assert created(later) == ["run-0-1", "run-1-1", "run-2-1"]
    again = later.plus(a_worker(0), a_worker(1), homeless(2))
    second = again.plan.status.placement
    assert second is not None
    assert second.tries == 2


def test_a_gang_that_is_whole_after_all_starts_and_forgets_its_tries() -> None:
    scene = given_back(half_placed()).without(2).plus(a_worker(2)).resolved()
    assert scene.plan.reason == "Started"
    assert scene.plan.status.placement is None


def test_survivors_finish_their_uploads_before_they_are_given_back() -> None:
    scene = a_run(replicas=3, max_failures=3, placement_timeout=seconds(10)).running()
    scene = scene.ended(an_incident(), ago=15, flush=(10,)).without(2)
    scene = scene.with_agent(0, phase="Flushing").plus(homeless(2, 2, since=11))
    scene = given_back(scene)
    scene = scene.after(scene.plan)  # which names what is deleted next
    assert deleted(scene) == ["run-1-1", "run-2-2"]
    assert scene.hold(0).flush == (10,)


def test_workers_that_were_given_back_do_not_blur_what_ended_the_attempt() -> None:
    broken = an_incident(message="connection reset", collateral=True)
    scene = a_run(replicas=3, max_failures=3).running().ended(broken, ago=700)
    scene = scene.with_exit(2, exception="RuntimeError: connection reset")
    scene = given_back(scene.with_worker(2, phase="Ended").plus(homeless(2, 2)))
    for slot in range(3):
        scene = scene.without(slot)
    incident = scene.plan.status.incident
    assert incident is not None
    assert incident.message == "connection reset"


def test_a_suspension_ends_the_search_for_room() -> None:
    scene = given_back(half_placed(suspend=False)).with_config(suspend=True)
    assert scene.plan.reason == "Suspended"
    assert scene.plan.status.placement is None


@pytest.mark.parametrize(
    ("timeout", "tries", "least", "most"),
    [(600, 1, 30, 60), (600, 2, 60, 120), (600, 99, 600, 1200), (10, 1, 10, 20), (10, 3, 40, 80)],
)
def test_the_pause_grows_and_differs_from_run_to_run(
    timeout: float, tries: int, least: float, most: float
) -> None:
    pauses = set()
    for number in range(20):
        config = a_config(uid=f"uid-{number}", placement_timeout=seconds(timeout))
        empty = Observation(now=a_run().now, status=a_run().status, listening_for=timedelta(0))
        pauses.add(pause(View(observation=empty, config=config), tries))
    assert len(pauses) == 20
    assert seconds(least) <= min(pauses) < max(pauses) <= seconds(most)


def test_an_attempt_that_runs_is_never_touched() -> None:
    scene = a_run(replicas=3).running().plus(homeless(2, 2))
    assert scene.plan.reason == "Running"
