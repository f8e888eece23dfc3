"""What of a run's file a drill in a cluster takes over."""

from __future__ import annotations

from typing import Any

import yaml

from tests.api.spec_table import BASE
from tests.kube.patching import merged
from trainrun_operator.api.loading import load_trainrun
from trainrun_operator.api.run.spec import MAX_NAME
from trainrun_operator.cli.drilling.cluster_environment import drill_document, drill_name

ENV = [
    {"name": "WANDB_MODE", "value": "online"},
    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
]
CONTAINERS = [
    {"name": "sidecar", "image": "proxy", "command": ["proxy"]},
    {"name": "worker", "image": "bert", "command": ["train"], "env": ENV, "tty": True},
]
OWN: dict[str, Any] = {
    "metadata": {
        "name": "bert",
        "labels": {"queue": "night"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "x"},
    },
    "spec": {
        "suspend": True,
        "activeDeadline": "240h",
        "workers": {"template": {"spec": {"containers": CONTAINERS}}},
        "storage": {"uri": "s3://bucket/runs", "runName": "bert-large"},
        "failurePolicy": {"maxFailures": 9},
    },
}


def drilled() -> dict[str, Any]:
    run = load_trainrun(yaml.safe_dump(merged(BASE, OWN)), source="bert.yaml")
    return drill_document(run, name="bert-drill-1", namespace="team", faults=1, seconds=60)


def test_name_and_storage_folder_are_its_own_beside_the_users() -> None:
    document = drilled()
    assert document["metadata"] == {
        "name": "bert-drill-1",
        "namespace": "team",
        "labels": {"queue": "night", "trainrun.dev/drill": "bert"},
        "annotations": {"note": "x"},
    }
    storage = document["spec"]["storage"]
    assert storage == {"uri": "s3://bucket/runs", "runName": "bert-drill-1", "onExisting": "Fail"}


def test_it_is_bounded_and_survives_its_fault_alone() -> None:
    spec = drilled()["spec"]
    assert "suspend" not in spec
    assert (spec["activeDeadline"], spec["ttlAfterFinished"]) == ("180s", "168h")
    assert spec["failurePolicy"] == {"maxFailures": 1, "backoff": {"initial": "0s"}}
    assert spec["retainFailedWorkers"] == 0


def test_trackers_of_the_container_that_trains_are_offline_and_the_rest_is_as_written() -> None:
    sidecar, worker = drilled()["spec"]["workers"]["template"]["spec"]["containers"]
    assert sidecar == CONTAINERS[0]
    assert worker["env"] == [
        ENV[1],
        {"name": "WANDB_MODE", "value": "offline"},
        {"name": "MLFLOW_TRACKING_URI", "value": "file:///tmp/mlruns"},
        {"name": "MLFLOW_ALLOW_FILE_STORE", "value": "true"},
    ]
    assert worker["tty"] is True


def test_a_long_name_is_cut_so_that_pods_can_be_named_after_it() -> None:
    name = "a" * (MAX_NAME - 14) + "-" + "b" * 13
    run = load_trainrun(
        yaml.safe_dump(merged(BASE, {"metadata": {"name": name}})), source="long.yaml"
    )
    told = drill_name(run, 12, "beef")
    assert len(told) <= MAX_NAME
    assert told.endswith("a-drill-beef-12")
