"""Whose token it is, by a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.kube.objects import pod
from trainrun_operator.cluster.pod_tokens import PodIdentity, review
from trainrun_operator.kube.errors import Unavailable

if TYPE_CHECKING:
    from tests.kube.api_server import ApiServer
    from trainrun_operator.kube.api import KubeApi

AUDIENCE = "trainrun-agents"


@pytest.fixture
async def worker(api: KubeApi, namespace: str) -> dict[str, Any]:
    """A pod on a node."""
    await api.post("/api/v1/nodes", {"metadata": {"name": f"node-of-{namespace}"}})
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await api.post(accounts, {"metadata": {"name": "trainer"}})
    spec = {"serviceAccountName": "trainer", "nodeName": f"node-of-{namespace}"}
    return await api.post(f"/api/v1/namespaces/{namespace}/pods", pod("run-0-1", **spec))


async def token_of(
    api: KubeApi, worker: dict[str, Any], *, audience: str = AUDIENCE, bound: bool = True
) -> str:
    """As the kubelet asks for it."""
    metadata = worker["metadata"]
    spec: dict[str, Any] = {"audiences": [audience], "expirationSeconds": 600}
    if bound:
        spec["boundObjectRef"] = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
    path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/trainer/token"
    answer = await api.post(path, {"spec": spec})
    token: str = answer["status"]["token"]
    return token


async def test_a_pods_token_says_which_pod_it_is(
    api: KubeApi, namespace: str, worker: dict[str, Any]
) -> None:
    assert await review(api, await token_of(api, worker), AUDIENCE) == PodIdentity(
        namespace=namespace,
        pod="run-0-1",
        pod_uid=worker["metadata"]["uid"],
    )


async def test_a_token_for_the_api_server_is_not_good_for_us(
    api: KubeApi, worker: dict[str, Any]
) -> None:
    token = await token_of(api, worker, audience="https://kubernetes.default.svc")

    assert await review(api, token, AUDIENCE) is None


async def test_a_token_that_is_bound_to_no_pod_is_nobodys(
    api: KubeApi, worker: dict[str, Any]
) -> None:
    assert await review(api, await token_of(api, worker, bound=False), AUDIENCE) is None


async def test_nonsense_is_nobodys(api: KubeApi) -> None:
    assert await review(api, "nonsense", AUDIENCE) is None


async def test_the_token_of_a_deleted_pod_is_soon_not_accepted(
    api: KubeApi, namespace: str, worker: dict[str, Any]
) -> None:
    token = await token_of(api, worker)
    path = f"/api/v1/namespaces/{namespace}/pods/run-0-1"
    await api.delete(path, body={"gracePeriodSeconds": 0})

    # The API server looks for the pod in a cache of its own; an answer that came of an old one it
    # repeats for 10 s (the time to live of its authenticated tokens, Kubernetes 1.36).
    async with asyncio.timeout(30):
        while await review(api, token, AUDIENCE) is not None:
            await asyncio.sleep(0.02)


async def test_an_api_server_that_is_away_refuses_nobody(
    api: KubeApi, apiserver: ApiServer, worker: dict[str, Any]
) -> None:
    token = await token_of(api, worker)
    apiserver.kill()
    try:
        with pytest.raises(Unavailable):
            await review(api, token, AUDIENCE)
    finally:
        apiserver.start()
