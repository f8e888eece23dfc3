"""The pod of a clerk: our image, the access of the trials."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.worlds.kubernetes.sweeps import PLACE, a_document, a_sweep
from trainrun.contract.variables import CLERK_CONFIG
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.core.sweep.clerking import ClerkConfig
from trainrun_operator.worlds.kubernetes.clerk_pod import (
    ClerkImage,
    clerk_hash,
    clerk_pod,
    next_creation,
)
from trainrun_operator.worlds.kubernetes.observing.pods import is_ours, pod_fact


def pod(sweep: TrainSweep | None = None, *, creation: int = 1) -> dict[str, Any]:
    image = ClerkImage(image="operator:1")
    return clerk_pod(sweep or a_sweep(), creation=creation, image=image, place=PLACE)


TOKEN = ("trainrun-token", "/var/run/secrets/trainrun")


def mounting(name: str, path: str, **spec: Any) -> TrainSweep:
    """A sweep whose trials mount this volume."""
    mount = {"name": name, "mountPath": path}
    worker = {"name": "worker", "image": "train", "command": ["train"], "volumeMounts": [mount]}
    return a_sweep(pod={"containers": [worker], **spec})


def mounts(made: dict[str, Any]) -> list[tuple[str, str]]:
    (container,) = made["spec"]["containers"]
    return [(it["name"], it["mountPath"]) for it in container["volumeMounts"]]


def env(made: dict[str, Any]) -> dict[str, Any]:
    (container,) = made["spec"]["containers"]
    return {entry["name"]: entry for entry in container["env"]}


def test_it_is_known_by_its_seal_and_goes_with_its_sweep() -> None:
    made = pod(creation=2)
    assert made["metadata"]["name"] == "search-clerk-2"
    made["metadata"]["creationTimestamp"] = "2026-11-01T12:00:00Z"
    fact = pod_fact(made)
    assert fact is not None
    assert is_ours(fact, "uid-1", b"key")
    assert not is_ours(fact, "uid-1", b"another key")
    assert next_creation([fact]) == 3
    assert next_creation([]) == 1


def test_it_has_the_access_to_the_storage_that_trials_have() -> None:
    sweep = a_sweep(
        pod={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}
    )
    made = pod(sweep)
    assert made["spec"]["serviceAccountName"] == "trainer"
    assert made["spec"]["volumes"][0]["name"] == "data"
    assert len({volume["name"] for volume in made["spec"]["volumes"]}) == 3
    (container,) = made["spec"]["containers"]
    assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]
    assert env(made)["AWS_PROFILE"]["value"] == "team"
    assert env(made)["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "keys"


def test_it_has_the_label_by_which_azure_gives_a_pod_an_identity() -> None:
    document = a_document()
    template = document["spec"]["run"]["workers"]["template"]
    template["metadata"] = {"labels": {"azure.workload.identity/use": "true", "team": "a"}}
    labels = pod(a_sweep(run=document["spec"]["run"]))["metadata"]["labels"]
    assert labels["azure.workload.identity/use"] == "true"
    assert "team" not in labels


def test_what_is_meant_for_the_image_of_the_training_is_not_taken() -> None:
    assert env(pod())["PYTHONPATH"]["value"].startswith("/opt/trainrun/app")


def test_it_is_told_whose_clerk_it_is_and_where_the_log_lies() -> None:
    told = env(pod())[CLERK_CONFIG]["value"]
    config = ClerkConfig.read({CLERK_CONFIG: told.replace("$$", "$")})
    assert (config.sweep, config.sweep_uid) == ("team/search", "uid-1")
    assert (config.storage.uri, config.storage.run_name) == ("s3://bucket/sweeps", "search")
    assert config.operator_url == "https://operator:8443"
    assert json.loads(told)["ca"] == "PEM"


def test_it_works_where_pods_are_restricted_and_the_template_may_name_its_user() -> None:
    made = pod()
    (container,) = made["spec"]["containers"]
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    own = pod(a_sweep(pod={"securityContext": {"runAsUser": 1000, "fsGroup": 100}}))
    assert own["spec"]["securityContext"]["runAsUser"] == 1000
    assert own["spec"]["securityContext"]["runAsNonRoot"] is True


def test_a_sweep_whose_trials_run_as_root_has_a_clerk_that_the_kubelet_starts() -> None:
    def context(**theirs: object) -> dict[str, Any]:
        made: dict[str, Any] = pod(a_sweep(pod={"securityContext": theirs}))["spec"]
        return made["securityContext"]

    root = context(runAsUser=0)
    assert root["runAsUser"] == 0
    assert "runAsNonRoot" not in root
    assert context(runAsUser=0, runAsNonRoot=False)["runAsNonRoot"] is False


@pytest.mark.parametrize(
    ("given", "requests", "limits"),
    [
        ({}, {"cpu": "50m", "memory": "128Mi"}, {"memory": "1Gi"}),
        (
            {"limits": {"cpu": 1}},  # the API server makes a request of it
            {"memory": "128Mi"},
            {"cpu": 1, "memory": "1Gi"},
        ),
        ({"limits": {"memory": "100Mi"}}, {"cpu": "50m"}, {"memory": "100Mi"}),
        (
            {
                "requests": {"memory": "2Gi"},
                "limits": {"memory": "2Gi", "ephemeral-storage": "1Gi"},
            },
            {"cpu": "50m", "memory": "2Gi"},
            {"memory": "2Gi", "ephemeral-storage": "1Gi"},
        ),
    ],
)
def test_its_resources_are_those_that_the_sweep_names_and_else_our_own(
    given: dict[str, Any], requests: dict[str, Any], limits: dict[str, Any]
) -> None:
    (container,) = pod(a_sweep(clerk={"resources": given}))["spec"]["containers"]
    assert container["resources"] == {"requests": requests, "limits": limits}


def test_another_spec_of_it_makes_another_clerk_and_nothing_else_does() -> None:
    usual = clerk_hash(a_sweep())
    assert usual == clerk_hash(a_sweep(budget={"trials": 9}, maxConcurrent=3))
    assert pod(a_sweep())["metadata"]["labels"]["trainrun.dev/template-hash"] == usual
    others = [
        a_sweep(clerk={"resources": {"limits": {"cpu": "1"}}}),
        a_sweep(pod={"imagePullSecrets": [{"name": "registry"}]}),
        a_sweep(storage={"uri": "s3://bucket/sweeps", "credentialsSecretRef": {"name": "new"}}),
    ]
    assert len({usual, *map(clerk_hash, others)}) == 4


def test_it_leaves_a_node_that_does_not_answer_within_seconds() -> None:
    assert {it["tolerationSeconds"] for it in pod()["spec"]["tolerations"]} == {10}


def test_a_sweep_on_a_tainted_gpu_pool_has_a_clerk_that_finds_a_node() -> None:
    taint = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    spec = {"nodeSelector": {"pool": "gpu"}, "tolerations": [taint]}
    made = pod(a_sweep(pod=spec))
    assert made["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert taint in made["spec"]["tolerations"]


def test_trials_that_tolerate_everything_do_not_keep_a_clerk_on_a_dead_node() -> None:
    made = pod(a_sweep(pod={"tolerations": [{"operator": "Exists"}]}))
    *ours, theirs = made["spec"]["tolerations"]
    # The node controller takes the first one that fits a taint.
    assert [(it["key"], it["tolerationSeconds"]) for it in ours] == [
        ("node.kubernetes.io/not-ready", 10),
        ("node.kubernetes.io/unreachable", 10),
    ]
    assert theirs == {"operator": "Exists"}


@pytest.mark.parametrize("path", ["/tmp", "/tmp/"])
def test_a_sweep_whose_template_has_a_volume_for_tmp_gets_its_clerk(path: str) -> None:
    made = pod(mounting("tmp", path, volumes=[{"name": "tmp", "emptyDir": {}}]))
    assert mounts(made) == [("tmp", path), TOKEN]


def test_a_sweep_whose_template_calls_a_volume_tmp_gets_its_clerk() -> None:
    made = pod(mounting("tmp", "/scratch", volumes=[{"name": "tmp", "emptyDir": {}}]))
    assert mounts(made) == [("tmp", "/scratch"), TOKEN, ("trainrun-tmp", "/tmp")]
    volumes = [volume["name"] for volume in made["spec"]["volumes"]]
    assert volumes == ["tmp", "trainrun-token", "trainrun-tmp"]


def test_a_sweep_whose_trials_mount_our_volume_gets_its_clerk() -> None:
    made = pod(mounting("trainrun", "/scratch"))
    assert mounts(made) == [TOKEN, ("trainrun-tmp", "/tmp")]
    own = pod(mounting("trainrun", "/scratch", volumes=[{"name": "trainrun", "emptyDir": {}}]))
    assert mounts(own) == [("trainrun", "/scratch"), TOKEN, ("trainrun-tmp", "/tmp")]


def test_a_mount_where_the_token_lies_makes_way_as_it_does_in_workers() -> None:
    volumes = [{"name": "mine", "emptyDir": {}}]
    made = pod(mounting("mine", "/var/run/secrets/trainrun", volumes=volumes))
    assert mounts(made) == [TOKEN, ("trainrun-tmp", "/tmp")]
