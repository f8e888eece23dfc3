"""The pod of a clerk: our image, the access of the trials."""

from __future__ import annotations

import json
from typing import Any

from tests.worlds.kubernetes.sweeping.sweeps import PLACE, a_sweep
from trainrun.contract.variables import CLERK_CONFIG
from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.core.sweep.clerking import ClerkConfig
from trainrun_operator.worlds.kubernetes.observing.pods import pod_fact
from trainrun_operator.worlds.kubernetes.seal import is_ours
from trainrun_operator.worlds.kubernetes.sweeping.clerk_pod import (
    ClerkImage,
    clerk_pod,
    next_creation,
)


def pod(sweep: TrainSweep | None = None, *, creation: int = 1) -> dict[str, Any]:
    image = ClerkImage(image="operator:1")
    return clerk_pod(sweep or a_sweep(), creation=creation, image=image, place=PLACE)


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


def test_it_leaves_a_node_that_does_not_answer_within_seconds() -> None:
    assert {it["tolerationSeconds"] for it in pod()["spec"]["tolerations"]} == {10}
