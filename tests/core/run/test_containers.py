"""Containers beside the one that trains: their failure is a condition, and stops nothing."""

from __future__ import annotations

import pytest

from tests.support.builders import a_run, a_worker

DIED = "container pytorch of worker run-0-1 ended with exit code 1; see kubectl logs"


@pytest.mark.case("nodes", "A container beside the training fails")
def test_the_container_pytorch_died_and_its_user_is_told_while_the_run_goes_on() -> None:
    """The run succeeded: all 1 processes ended with exit code 0."""
    scene = a_run(replicas=3).running().with_worker(0, container_failure=DIED)
    told = scene.with_worker(2, container_failure="another").plan
    text = f"{DIED}; the same in 1 other worker"
    assert [(e.type, e.reason, e.message) for e in told.events] == [
        ("Warning", "ContainerFailed", text)
    ]
    found = told.status.condition("ContainerFailed")
    assert found is not None
    assert (found.status, found.reason, found.message) == ("True", "NonZeroExit", text)
    assert told.status.phase == "Running"
    mended = (
        scene.after(told).with_worker(0, container_failure="").with_worker(2, container_failure="")
    )
    assert mended.plan.status.condition("ContainerFailed") is None


def test_it_is_still_told_when_the_run_has_succeeded() -> None:
    scene = a_run().running().all_done().with_all(finished=True)
    scene = scene.with_worker(0, container_failure=DIED)
    while not scene.status.finished:
        scene = scene.after(scene.plan)
    assert scene.with_worker(0, phase="Ended").plan.status.is_true("ContainerFailed")


def test_nothing_is_told_of_pods_that_are_kept_for_their_logs() -> None:
    kept = a_worker(0, 0, phase="Ended", container_failure=DIED)
    assert not a_run().running().plus(kept).plan.status.is_true("ContainerFailed")
