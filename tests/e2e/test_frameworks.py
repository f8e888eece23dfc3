"""Trainings of frameworks on two nodes and S3; the scripts are those of tests/frameworks.

`make test-frameworks` tries them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testbed.faults import processes
from tests.e2e.support.incidents import training
from tests.e2e.support.this_machine import Environment
from tests.e2e.support.workers import delete_pod

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.cluster_run import ClusterRun

pytestmark = [pytest.mark.cluster, pytest.mark.frameworks]

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "frameworks"
STEPS = 24
LONGEST = 600.0
"""Seconds for an attempt: on a busy machine it takes minutes to import a framework."""


def test_a_model_in_shards_ends_with_the_same_shards_after_two_faults(bed: Bed) -> None:
    assert_that_faults_change_nothing(bed, "fsdp2_noise.py", Environment(ROOT / ".venv"))


def test_a_hugging_face_trainer_ends_with_the_same_weights_after_two_faults(bed: Bed) -> None:
    assert_that_faults_change_nothing(bed, "gpt2.py", Environment(ROOT / ".venv-frameworks"))


def assert_that_faults_change_nothing(bed: Bed, script: str, environment: Environment) -> None:
    """The process of one rank is killed, then the worker of the other is taken away."""
    scripts = {path.name: path.read_text() for path in (SCRIPTS / script, SCRIPTS / "common.py")}
    metadata = {"name": "frameworks", "namespace": bed.namespace}
    bed.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": scripts})

    # Both train at once: most of their time they wait.
    undisturbed = bed.run("undisturbed", gpus=0, **options(script, environment))
    # What is saved on notice is the last step before the worker is stopped.
    where = {"HANG_BEFORE_1": "15", "WAIT_AFTER_2": "18", "HANG_BEFORE_2": "19"}
    # Of eight GPUs on each node, so there are two nodes.
    run = bed.run("run", gpus=5, **options(script, environment, **where))

    run.wait_for_checkpoint(12, seconds=LONGEST)
    before = training(run)
    assert len({run.pod(slot)["spec"]["nodeName"] for slot in (0, 1)}) == 2
    name, command = run.pod(1)["metadata"]["name"], rf"^{environment.python} /scripts/{script}"
    processes.kill(bed.cluster, name, matching=command, namespace=bed.namespace)
    incident = before.one_incident("AppError", seconds=LONGEST)
    assert incident["message"] == "rank 1 was killed by SIGKILL"
    assert incident["resumedFrom"]["step"] == 12

    run.wait_for_checkpoint(16, seconds=LONGEST)
    before = training(run)
    delete_pod(run, 0)
    incident = before.saved_on_notice(0, seconds=LONGEST)
    assert incident["lostSteps"] == 0

    for each in (run, undisturbed):
        assert each.wait_for_phase("Succeeded", seconds=LONGEST)["progress"]["step"] == STEPS
    expected = weights(undisturbed)
    assert len(expected) == 2
    assert weights(run) == expected


def options(script: str, environment: Environment, **where: str) -> dict[str, Any]:
    """Those of a run of this script, which stays where a fault is to strike."""
    variables = {"OUT": "/tmp", **where}
    scripts = {"name": "scripts", "configMap": {"name": "frameworks"}}
    return {
        "script": script,
        "replicas": 2,
        "container": {
            "command": [environment.python, f"/scripts/{script}"],
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}, *environment.mounts],
        },
        "pod": {
            "volumes": [scripts, *environment.volumes],
            "terminationGracePeriodSeconds": 60,
        },
        "failurePolicy": {"maxFailures": 1, "maxPreemptions": 1},
        "health": {"heartbeatTimeout": "30s"},
    }


def weights(run: ClusterRun) -> list[str]:
    """What each rank said at the end, by rank."""
    logs = [run.log(run.pod(slot)["metadata"]["name"]) for slot in (0, 1)]
    return [
        told[1]
        for rank, log in enumerate(logs)
        for told in re.finditer(rf"weights of rank {rank}: (\w+)$", log, re.MULTILINE)
    ]
