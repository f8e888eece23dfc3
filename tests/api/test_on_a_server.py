"""What a real API server does with our CRD: merging, refusing, keeping."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.eventually import eventually
from trainrun_operator.api.loading import read
from trainrun_operator.api.resources import TRAINRUN

if TYPE_CHECKING:
    from tests.support.trainruns import TrainRuns
    from trainrun_operator.kube.api import KubeApi


def a_run(pod: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainrun.dev/v1alpha1",
        "kind": "TrainRun",
        "metadata": {"name": "digits"},
        "spec": {"workers": {"template": {"spec": pod}}, **spec},
    }


def by_name(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in entries}


def test_containers_and_variables_of_two_managers_are_merged_by_name(trainruns: TrainRuns) -> None:
    users = {"name": "worker", "command": ["python", "train.py"]}
    platforms = {"name": "worker", "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}]}
    trainruns.apply(
        a_run(
            {
                "containers": [users | {"env": [{"name": "SEED", "value": "1"}]}],
                "initContainers": [{"name": "data", "image": "data:1"}],
            },
            storage={"uri": "s3://bucket/prefix"},
        ),
        manager="user",
    )

    trainruns.apply(
        a_run(
            {
                "containers": [platforms, {"name": "logs", "image": "logs:1"}],
                "initContainers": [{"name": "certificates", "image": "certificates:1"}],
            }
        ),
        manager="platform",
    )
    # Who applies the same again takes nothing away from the other.
    trainruns.apply(
        a_run(
            {
                "containers": [users | {"env": [{"name": "SEED", "value": "2"}]}],
                "initContainers": [{"name": "data", "image": "data:2"}],
            },
            storage={"uri": "s3://bucket/prefix"},
        ),
        manager="user",
    )

    stored = trainruns.get()
    pod = stored["spec"]["workers"]["template"]["spec"]
    containers = by_name(pod["containers"])
    assert containers.keys() == {"worker", "logs"}
    assert containers["worker"]["command"] == ["python", "train.py"]
    assert {
        name: entry["value"] for name, entry in by_name(containers["worker"]["env"]).items()
    } == {"SEED": "2", "HTTPS_PROXY": "http://proxy"}
    assert {name: entry["image"] for name, entry in by_name(pod["initContainers"]).items()} == {
        "data": "data:2",
        "certificates": "certificates:1",
    }
    assert read(stored, TRAINRUN, source="the server").spec.workers.template.spec.training.env


def test_a_container_of_a_name_that_is_taken_is_refused(trainruns: TrainRuns) -> None:
    twice = [{"name": "worker", "command": ["a"]}, {"name": "worker", "command": ["b"]}]

    with pytest.raises(subprocess.CalledProcessError) as refused:
        trainruns.create(workers={"template": {"spec": {"containers": twice}}})

    assert "spec.workers.template.spec.containers[1]: Duplicate value" in refused.value.stderr


def test_more_environment_than_256_kib_is_refused(trainruns: TrainRuns) -> None:
    """Hundreds of such runs would fill the memory of whoever lists them."""
    env = [{"name": f"V{number}", "value": "x" * 100_000} for number in range(3)]
    worker = {"name": "worker", "command": ["train"], "env": env}

    with pytest.raises(subprocess.CalledProcessError) as refused:
        trainruns.create(workers={"template": {"spec": {"containers": [worker]}}})

    assert "must have at most 262144 characters" in refused.value.stderr


def test_conditions_of_two_managers_are_merged_by_type(trainruns: TrainRuns) -> None:
    trainruns.create()
    for manager, kind in (("operator", "Running"), ("quota", "Admitted")):
        trainruns.apply_status(
            {
                "conditions": [
                    {
                        "type": kind,
                        "status": "True",
                        "reason": "Because",
                        "lastTransitionTime": "2026-01-31T12:00:00Z",
                    }
                ]
            },
            manager=manager,
        )

    conditions = trainruns.get()["status"]["conditions"]
    assert {condition["type"] for condition in conditions} == {"Running", "Admitted"}


async def test_words_of_a_newer_operator_are_kept(trainruns: TrainRuns, api: KubeApi) -> None:
    made = trainruns.create()
    status = {"phase": "Resizing"}

    path = f"/apis/trainrun.dev/v1alpha1/namespaces/{trainruns.namespace}/trainruns/digits/status"
    written = await api.put(path, made | {"status": status})

    assert written["status"]["phase"] == "Resizing"
    assert trainruns.get()["status"]["phase"] == "Resizing"


def test_get_all_lists_runs(trainruns: TrainRuns) -> None:
    def in_all() -> bool:
        shown = trainruns.kubectl("api-resources", "--categories=all", "--output=name")
        return "trainruns.trainrun.dev" in shown

    # Discovery follows a CRD that was replaced a little later; this fills kubectl's cache anew.
    eventually(in_all, timeout=30)
    trainruns.create()

    assert "trainrun.trainrun.dev/digits" in trainruns.kubectl("get", "all", "--output=name")
