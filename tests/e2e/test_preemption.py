"""A more important pod takes a worker's place: nothing is lost, and the gang waits for room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.faults import pods
from tests.e2e.support.incidents import succeeded, training

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed

pytestmark = pytest.mark.cluster


@pytest.mark.case(
    "nodes", "The scheduler preempts a worker for a more important pod", counted="maxPreemptions"
)
@pytest.mark.case("nodes", "There is no room for any worker")
def test_a_preempted_gang_goes_on_when_room_returns(bed: Bed) -> None:
    run = bed.run(
        gpus=8,
        args=["--yield", "--attempts", 2],
        pod={"terminationGracePeriodSeconds": 60},
        failurePolicy={"maxFailures": 0, "maxPreemptions": -1},
        health={"heartbeatTimeout": "10s"},
    )
    before = training(run)
    node = run.pod(1)["spec"]["nodeName"]
    pods.preempt(bed.cluster, gpus=8, node=node, namespace=bed.namespace)

    status = run.wait(
        "a gang that waits for room",
        lambda s: (
            s["phase"] == "Restarting"
            and any(c["reason"] == "Unschedulable" for c in s["conditions"])
        ),
        seconds=120,
    )
    assert status["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in run.condition("WorkersReady")["message"]
    assert status["internal"]["incident"]["cause"] == "Preempted"

    pods.relieve(bed.cluster, namespace=bed.namespace)
    incident = before.saved_on_notice(1)
    assert "(preempted by the scheduler" in incident["message"]
    assert incident["lostSteps"] == 0
    status = succeeded(run)
    assert (status["failures"]["counted"], len(run.incidents)) == (0, 1)
