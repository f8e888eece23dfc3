"""Two runs that want the same: the same room, or the same folder of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.faults import nodes
from tests.e2e.support.incidents import succeeded, training
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.cluster_run import ClusterRun, Json

pytestmark = pytest.mark.cluster

HEALTH = {"heartbeatTimeout": "10s"}
MORE_THAN_HALF_A_NODE = 5


@pytest.mark.usefixtures("mended")
@pytest.mark.rare(
    "tests/simulation/test_nodes_and_room.py::test_two_runs_of_which_only_one_fits_both_finish"
)
def test_of_two_gangs_that_hold_half_of_the_room_each_both_finish(bed: Bed) -> None:
    n1, n2, n3 = (node.name for node in bed.cluster.nodes)
    for node, taint in ((n1, "first"), (n2, "first"), (n3, "second")):
        nodes.taint(bed.cluster, node, f"example.com/{taint}", effect="NoSchedule")
    first, second = (_large_run(bed, name) for name in ("first", "second"))
    _wait_until_placed(first, 2)
    _wait_until_placed(second, 1)
    assert "waiting for" in first.condition("Running")["message"]

    # From now on there is room for either of them, but not for the rest of both.
    for node, taint in ((n1, "first"), (n2, "first"), (n3, "second")):
        nodes.untaint(bed.cluster, node, f"example.com/{taint}")
    for run in (first, second):
        status = run.wait_for_phase("Succeeded", seconds=240)
        assert status["attempt"] == 1
        assert not status["failures"].get("counted")
        assert not status.get("incidents")
        assert "placement" not in status["internal"]
        succeeded(run)
    told = [message for run in (first, second) for message in _messages(run, "GangNotPlaced")]
    assert told, "one of them has given its pods back"
    assert all("no room for" in message for message in told)
    assert all("within health.placementTimeout (10 s)" in message for message in told)


def _large_run(bed: Bed, name: str) -> ClusterRun:
    return bed.run(
        name,
        args=["--steps", 10],
        gpus=MORE_THAN_HALF_A_NODE,
        pod={"tolerations": [{"key": f"example.com/{name}", "operator": "Exists"}]},
        health={**HEALTH, "placementTimeout": "10s"},
    )


def _wait_until_placed(run: ClusterRun, number: int) -> None:
    def placed() -> list[Json]:
        return [pod for pod in run.pods() if pod["spec"].get("nodeName")]

    eventually(lambda: len(placed()) == number, timeout=60, what=f"{number} pods of {run.name}")


def _messages(run: ClusterRun, reason: str) -> list[str]:
    return [message for found, message in run.events() if found == reason]


@pytest.mark.rare("tests/checkpoint/test_ownership.py")
def test_two_runs_on_one_storage_path_take_turns(bed: Bed) -> None:
    options = {"replicas": 1, "gpus": 0, "health": HEALTH, "storage": {"runName": "shared"}}
    first = bed.run("first", args=["--attempts", 2], **options)
    first.in_storage = "shared"
    training(first)

    second = bed.run("second", **options)
    second.in_storage = "shared"
    second.wait("the storage to be in use", lambda _: second.condition("StorageReady"))
    used = second.condition("StorageReady")
    assert (used["status"], used["reason"]) == ("False", "StorageInUse")
    assert bed.json("trainrun", "first")["metadata"]["uid"] in used["message"]
    assert "StorageInUse" in second.reasons()
    assert first.status["phase"] == "Running"

    saved = first.newest_step()
    first.delete()
    status = succeeded(second)
    # What the first one has stored after that is used as well.
    resumed_from = status["internal"]["startRecord"]["resumePoint"]["step"]
    assert resumed_from >= saved
    assert not status["failures"].get("counted")
    assert not status.get("incidents")
    (resumed,) = _messages(second, "ResumedExisting")
    assert f"step {resumed_from} of attempt 1" in resumed
    assert second.condition("StorageReady")["status"] == "True"
