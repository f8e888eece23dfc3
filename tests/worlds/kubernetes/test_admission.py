"""Pods as rendered, before a real API server: valid, admitted, and known again as ours."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.kube.patching import patch
from tests.worlds.kubernetes.test_render import ACTION, KEY, PLACE, RICH, Raw, a_run, plain
from trainrun_operator.core.run.config import config_of
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Forbidden, Invalid
from trainrun_operator.worlds.kubernetes.observing.pods import is_ours, pod_fact
from trainrun_operator.worlds.kubernetes.render import worker_pod

RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
RESTRICTED_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
SOME = {"cpu": "1", "memory": "1Gi"}


async def created(api: KubeApi, namespace: str, template: Raw, **spec: Any) -> Raw:
    """The pod as the API server keeps it."""
    run = a_run(template, **spec)
    run = run.model_copy(
        update={"metadata": run.metadata.model_copy(update={"namespace": namespace})}
    )
    pod = worker_pod(run, config_of(run), template, ACTION, PLACE)
    # What the admission of service accounts does, which needs controllers.
    pod["spec"].setdefault("serviceAccountName", "default")
    return await api.post(f"/api/v1/namespaces/{namespace}/pods", pod)


async def restrict(api: KubeApi, namespace: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await patch(api, f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})


async def test_a_rich_template_makes_a_valid_pod_that_is_known_again(
    api: KubeApi, namespace: str
) -> None:
    template = copy.deepcopy(RICH)
    del template["spec"]["priorityClassName"]  # there is no such class
    raw = await created(api, namespace, template, storage={"credentialsSecretRef": {"name": "s3"}})
    fact = pod_fact(raw)
    assert fact is not None
    assert is_ours(fact, "run-uid", KEY)
    assert (fact.name, fact.slot, fact.creation, fact.phase) == ("digits-2-5", 2, 5, "Pending")
    assert raw["spec"]["terminationGracePeriodSeconds"] == 90
    assert raw["spec"]["schedulingGates"] == RICH["spec"]["schedulingGates"]
    assert fact.scheduled is not None
    assert fact.scheduled.reason == "SchedulingGated"
    assert fact.gates == ("kueue.x-k8s.io/admission",)


@pytest.mark.parametrize("agent", ["Inject", "InImage"])
async def test_a_template_that_is_restricted_as_a_whole_stays_so(
    api: KubeApi, namespace: str, agent: str
) -> None:
    await restrict(api, namespace)
    template = plain("python", "train.py", image="x:1", securityContext=RESTRICTED_CONTAINER)
    template["spec"]["securityContext"] = RESTRICTED_POD
    assert await created(api, namespace, template, workers={"agent": agent})


async def test_a_template_that_is_restricted_in_its_container_stays_so(
    api: KubeApi, namespace: str
) -> None:
    await restrict(api, namespace)
    context = RESTRICTED_CONTAINER | RESTRICTED_POD
    template = plain("python", "train.py", image="x:1", securityContext=context)
    assert await created(api, namespace, template)


async def test_only_what_the_template_itself_does_is_refused_by_the_restricted_profile(
    api: KubeApi, namespace: str
) -> None:
    await restrict(api, namespace)
    template = plain("python", "train.py", image="x:1", securityContext=RESTRICTED_CONTAINER)
    with pytest.raises(Forbidden) as refused:
        await created(api, namespace, template)
    assert "violates PodSecurity" in refused.value.message
    assert "runAsNonRoot != true" in refused.value.message
    assert "allowPrivilegeEscalation" not in refused.value.message


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"limits": SOME, "requests": SOME}, "Guaranteed"),
        ({"limits": SOME}, "Guaranteed"),
        ({"requests": SOME}, "Burstable"),
    ],
)
async def test_the_agent_does_not_change_the_quality_of_service(
    api: KubeApi, namespace: str, resources: Raw, quality: str
) -> None:
    template = plain("python", "train.py", image="x:1", resources=resources)
    raw = await created(api, namespace, template)
    assert raw["status"]["qosClass"] == quality


async def test_a_quota_on_limits_is_passed_by_a_template_that_has_them(
    api: KubeApi, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    hard = {"limits.cpu": "1", "limits.memory": "1Gi"}
    quota = await api.post(path, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    used = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    await api.put(f"{path}/q/status", quota | used)
    template = plain("python", "train.py", image="x:1", resources={"limits": SOME})
    assert await created(api, namespace, template)


async def test_a_broken_template_is_refused_with_the_place_of_the_mistake(
    api: KubeApi, namespace: str
) -> None:
    template = plain("python", "train.py", image="x:1", imagePullPolicy="Sometimes")
    with pytest.raises(Invalid) as refused:
        await created(api, namespace, template)
    assert "spec.containers[0].imagePullPolicy" in refused.value.message
