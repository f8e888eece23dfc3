"""How long is waited is measured from what holds now, by a clock that may differ from another's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import WorkerObservation, a_run, a_worker, an_incident, seconds
from trainrun_operator.api.run.status import Condition, Placement
from trainrun_operator.api.run.status_parts import StoreWait
from trainrun_operator.core.run.boundary import Pending, Refused

HOURS = 3600.0


def refused_by_the_store(
    scene: WorkerObservation, *, ago: float, waited: float = 0.0
) -> WorkerObservation:
    """The store refuses us, has been asked without a break since so long ago, and before that for
    so many seconds."""
    scene = scene.waiting().resolved(outcome="Misconfigured", message="no such bucket")
    since = scene.now - seconds(ago)
    wait = StoreWait(reason="StorageMisconfigured", since=since, waited=waited)
    return scene.with_status(store_wait=wait)


def storage(scene: WorkerObservation) -> Condition:
    found = scene.plan.status.condition("StorageReady")
    assert found is not None
    return found


def test_a_store_that_refused_us_all_the_time_fails_the_run() -> None:
    assert refused_by_the_store(a_run(), ago=29).plan.status.phase == "Pending"
    assert refused_by_the_store(a_run(), ago=31).plan.reason == "StorageMisconfigured"
    assert refused_by_the_store(a_run(), ago=31).plan.status.phase == "Failed"


def test_the_time_before_a_break_counts_and_the_break_does_not() -> None:
    scene = refused_by_the_store(a_run(), ago=20, waited=11)
    assert scene.plan.status.phase == "Failed"
    alone = scene.without(1)
    wait = alone.with_agent(0, resolution=None).plan.status.store_wait
    assert wait is not None
    assert (wait.since, wait.waited) == (None, 31.0)
    later = scene.with_status(store_wait=replace(wait, waited=20.0))
    later = later.after(later.with_agent(0, resolution=None).plan, passed=24 * HOURS)
    assert refused_by_the_store(later, ago=9, waited=20).plan.status.phase == "Pending"


@pytest.mark.case("storage", "Trouble with the store comes, goes and comes back")
def test_a_trouble_that_this_operator_has_not_seen_does_not_count() -> None:
    scene = refused_by_the_store(a_run(), ago=24 * HOURS)
    assert scene.listening(29).plan.status.phase == "Pending"
    assert scene.listening(31).plan.status.phase == "Failed"


def test_a_wait_of_a_clock_that_was_hours_ahead_has_just_begun() -> None:
    assert refused_by_the_store(a_run(), ago=-6 * HOURS).plan.status.phase == "Pending"


def lacking_room(scene: WorkerObservation) -> WorkerObservation:
    waits = Pending(kind="Unschedulable", message="0/3 nodes", since=seconds(60))
    return scene.plus(a_worker(0, phase="Pending", agent=None, pending=waits))


@pytest.mark.parametrize("how", ["no room", "no quota", "suspended"])
def test_nobody_knows_of_a_store_that_is_not_asked(how: str) -> None:
    scene = a_run(replicas=1, suspend=how == "suspended")
    scene = scene.with_condition("StorageReady", "False", "StorageMisconfigured", ago=60)
    if how == "no room":
        scene = lacking_room(scene)
    if how == "no quota":
        message = "exceeded quota"
        refused = Refused(
            slot=0, name="run-0-1", reason="QuotaExceeded", message=message, since=seconds(60)
        )
        scene = scene.refusing(refused)
    mark = storage(scene)
    assert (mark.status, mark.reason) == ("Unknown", "NotAsked")
    assert mark.message == "the store is asked again once all workers are there"
    assert "StorageReady" not in [event.reason for event in scene.plan.events]


def test_a_worker_that_is_being_started_does_not_end_the_wait_for_the_store() -> None:
    scene = a_run(replicas=1).with_condition("StorageReady", "False", "StorageUnavailable", ago=60)
    waits = Pending(kind="Starting", message="on its way", since=seconds(60))
    scene = scene.plus(a_worker(0, phase="Pending", agent=None, pending=waits))
    assert storage(scene).reason == "StorageUnavailable"


@pytest.mark.case("operator", "A leader's clock is hours ahead, and another one takes over")
@pytest.mark.parametrize(("ahead", "reason"), [(71.0, "BackingOff"), (6 * HOURS, "Resolving")])
def test_a_backoff_of_a_clock_that_was_hours_ahead_is_over(ahead: float, reason: str) -> None:
    scene = a_run(max_failures=1).running().ended(an_incident()).waiting()
    scene = scene.ended(an_incident(), not_before=scene.now + seconds(ahead)).waiting()
    assert scene.plan.reason == reason


@pytest.mark.parametrize(("ahead", "reason"), [(1199.0, "GangNotPlaced"), (6 * HOURS, "Gathering")])
def test_a_gang_is_gathered_again_whatever_clock_gave_it_back(ahead: float, reason: str) -> None:
    scene = a_run()
    held = Placement(tries=9, not_before=scene.now + seconds(ahead))
    assert scene.with_status(placement=held).plan.reason == reason
