"""Where the training itself matters: PyTorch on two nodes, foreign images, large checkpoints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from testbed.faults import nodes, processes
from testbed.faults.servers import slow_s3
from tests.e2e.support.bed import TORCH_IMAGE
from tests.e2e.support.incidents import succeeded, training
from tests.e2e.support.spreading import rather_on_different_nodes
from tests.e2e.support.workers import delete_pod, kill_training

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.installation import Installation

pytestmark = pytest.mark.cluster

# Debian builds PyTorch without libuv.
TORCH = {"env": [{"name": "USE_LIBUV", "value": "0"}]}
MEBIBYTE = 1 << 20


@pytest.mark.usefixtures("mended")
def test_a_training_through_three_faults_ends_with_the_weights_of_an_undisturbed_one(
    bed: Bed, installation: Installation
) -> None:
    options: dict[str, Any] = {
        "script": "ddp.py",
        "replicas": 2,
        "image": TORCH_IMAGE,
        "container": TORCH,
        "failurePolicy": {"maxFailures": 1, "maxPreemptions": 2},
        "health": {"heartbeatTimeout": "10s"},
    }
    undisturbed = bed.run("undisturbed", gpus=0, **options)
    expected = undisturbed.wait_for_phase("Succeeded", seconds=240)["progress"]

    run = bed.run(args=["--attempts", 4], pod=_a_minute_of_grace("run"), **options)
    before = training(run, seconds=240)
    assert len({run.pod(slot)["spec"]["nodeName"] for slot in range(2)}) == 2
    name = run.pod(1)["metadata"]["name"]
    processes.kill(bed.cluster, name, matching=r"^python3 /scripts/ddp", namespace=bed.namespace)
    incident = before.one_incident("AppError")
    assert (incident["rank"], incident["message"]) == (1, "rank 1 was killed by SIGKILL")
    assert before.replaced() == set()

    before = training(run, seconds=240)
    delete_pod(run, 1)
    before.saved_on_notice(1, seconds=240)

    node = run.pod(0)["spec"]["nodeName"]
    installation.lead_elsewhere(node)
    before = training(run, seconds=240)
    # The one that was replaced may have come to this node too.
    there = {slot for slot in range(2) if run.pod(slot)["spec"]["nodeName"] == node}
    nodes.power_off(bed.cluster, node)
    incident = before.one_incident("NodeLost", seconds=240)
    assert incident["node"] == node
    assert incident["slot"] in there
    assert before.replaced() == there

    status = run.wait_for_phase("Succeeded", seconds=240)
    assert status["progress"]["step"] == expected["step"] == 60
    assert status["progress"]["metrics"]["weights"] == expected["metrics"]["weights"]
    assert (status["failures"]["counted"], status["failures"]["preemptions"]) == (1, 2)
    assert run.causes == ["AppError", "Preempted", "NodeLost"]


def _a_minute_of_grace(run: str) -> dict[str, Any]:
    return {"terminationGracePeriodSeconds": 60, **rather_on_different_nodes(run)}


def test_an_image_keeps_its_own_libraries_while_the_agent_uses_others(bed: Bed) -> None:
    run = bed.run(
        script="foreign.py",
        image=TORCH_IMAGE,
        replicas=1,
        gpus=0,
        health={"heartbeatTimeout": "10s"},
    )
    run.wait_for_phase("Succeeded", seconds=120)
    assert run.newest_step() == 1, "the agent has stored it with a boto3 of its own"
    log = run.log(run.pods()[0]["metadata"]["name"])
    assert "\n[rank 0] trainrun of /trainrun/agent/lib/trainrun/__init__.py\n" in log
    of_the_image = r"^\[rank 0\] boto3 \S+ of /usr/lib/python3/dist-packages/boto3/__init__\.py$"
    assert re.search(of_the_image, log, re.MULTILINE)


@pytest.mark.rare("tests/agent/checkpoints/test_peer_copies.py")
def test_a_checkpoint_is_read_from_the_store_once_per_node(bed: Bed) -> None:
    workers, per_worker = 6, 2 * MEBIBYTE
    with slow_s3(bed.cluster, delay=0.0) as store:
        run = bed.run(
            replicas=workers,
            gpus=4,  # of eight, so two workers on each of three nodes
            args=["--attempts", 2, "--ballast", per_worker],
            storage={"endpointURL": store.endpoint},
            health={"heartbeatTimeout": "10s"},
        )
        before = training(run)
        assert len({run.pod(slot)["spec"]["nodeName"] for slot in range(workers)}) == 3
        answered = store.answered
        kill_training(run, 1)
        before.one_incident("AppError")
        # The second attempt is the last, and short. Every rank of it reads the whole checkpoint.
        succeeded(run)
        read = store.answered - answered
    checkpoint = workers * per_worker
    # A node may still have what its own workers have stored; the other two thirds it must read.
    assert 2 * checkpoint <= read < 4 * checkpoint
