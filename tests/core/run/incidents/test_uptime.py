"""A script that reports nothing has trained once its processes have been up for a minute."""

from __future__ import annotations

import pytest

from tests.support.builders import WorkerObservation, a_run, an_incident
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.incidents.losses import losses_of

GONE = "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"
NOT_MET = "torch.distributed.DistNetworkError: The client socket has timed out after 300000ms"
NOBODY_JOINED = (
    "DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined."
)
NOBODY_WROTE = "torch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /0//cpu//0/1"


def mute(
    *, up: float, fruitless: int = 4, failed_ago: float = 2.0, exception: str = ""
) -> WorkerObservation:
    """An attempt of a script that reports nothing; rank 0 has failed after `up` seconds."""
    scene = a_run(max_failures=-1).running().with_status(fruitless=fruitless)
    scene = scene.with_all(steps=(None,), spawned=up + failed_ago)
    return scene.with_exit(0, age=failed_ago, exception=exception)


def cause_of(scene: WorkerObservation) -> Cause:
    (loss,) = losses_of(scene.view)
    return loss.cause


@pytest.mark.parametrize(("up", "fruitless"), [(59.9, 5), (60.0, 0), (7200.0, 0)])
def test_a_minute_of_training_that_nobody_reports_ends_the_row_of_fruitless_attempts(
    up: float, fruitless: int
) -> None:
    status = mute(up=up).plan.status
    assert status.fruitless == fruitless
    assert status.ending is not None
    assert (status.ending.not_before is None) == (fruitless == 0)


def test_a_crash_that_is_heard_late_is_not_taken_for_training() -> None:
    assert mute(up=5.0, failed_ago=600.0).plan.status.fruitless == 5


def test_a_gang_that_is_gone_was_up_since_its_start() -> None:
    scene = a_run(replicas=1, max_failures=-1).running().with_status(fruitless=4)
    assert scene.without(0).plan.status.fruitless == 0  # a Scene's attempt began a minute ago


def test_where_steps_are_reported_time_is_no_progress() -> None:
    before = an_incident(attempt=1, counted=True, lost_steps=3)
    assert mute(up=7200.0).with_status(incidents=(before,)).plan.status.fruitless == 5
    scene = a_run(max_failures=-1).running(2, resume=(1, 6)).with_status(fruitless=4)
    scene = scene.with_all(steps=(None,), spawned=7200.0).with_exit(0)
    assert scene.plan.status.fruitless == 5


def test_a_store_that_is_gone_after_a_minute_of_training_is_no_failed_rendezvous() -> None:
    assert cause_of(mute(up=30.0, exception=GONE)) is Cause.RENDEZVOUS_FAILED
    assert cause_of(mute(up=90.0, exception=GONE)) is Cause.APP_ERROR


@pytest.mark.parametrize("exception", [NOT_MET, NOBODY_JOINED, NOBODY_WROTE])
def test_ranks_that_looked_for_each_other_for_minutes_have_not_trained(exception: str) -> None:
    scene = mute(up=302.0, exception=exception).asked_for_evidence()
    assert cause_of(scene) is Cause.RENDEZVOUS_FAILED
    assert scene.plan.status.fruitless == 5


def test_a_failed_rendezvous_that_looked_like_training_first_is_not_free_for_ever() -> None:
    """The peers of a rank that met nobody fail first, of broken connections, minutes later."""
    scene = mute(up=302.0, fruitless=3, exception="RuntimeError: Connection reset by peer")
    scene = scene.with_status(free_ends={Cause.RENDEZVOUS_FAILED: 3})
    scene = scene.after(scene.plan)
    assert (scene.status.fruitless, scene.status.free_ends) == (0, {Cause.RENDEZVOUS_FAILED: 3})
    scene = scene.with_exit(1, rank=1, age=9.0, exception=NOT_MET)
    scene = scene.after(scene.plan)
    assert scene.status.incident is not None
    assert (scene.status.incident.cause, scene.status.fruitless) == (Cause.RENDEZVOUS_FAILED, 1)
    scene = scene.ended(scene.status.incident).resolved()
    (settled,) = scene.plan.status.incidents
    assert (settled.cause, settled.budget) == (Cause.RENDEZVOUS_FAILED, "failures")


def test_a_rank_whose_peer_never_came_fails_no_run_that_allows_no_failure() -> None:
    scene = a_run(max_failures=0).running().with_all(steps=(None,), spawned=1800.0)
    scene = scene.with_exit(0, age=1.0, exception=NOBODY_WROTE)
    plan = scene.asked_for_evidence().plan
    assert plan.status.incident is not None
    assert plan.status.incident.cause == Cause.RENDEZVOUS_FAILED
    assert not plan.status.incident.counted
