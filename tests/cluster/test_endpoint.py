"""The address of the leader, in a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kube.patching import patch
from trainrun_operator.cluster.endpoint import publish_endpoint, service_place, withdraw_endpoint
from trainrun_operator.kube.errors import NotFound

if TYPE_CHECKING:
    from trainrun_operator.kube.api import KubeApi


async def publish(api: KubeApi, namespace: str, address: str) -> dict[str, Any]:
    await publish_endpoint(
        api, namespace=namespace, service="trainrun-agents", address=address, port=8443
    )
    return await published(api, namespace)


async def published(api: KubeApi, namespace: str) -> dict[str, Any]:
    return await api.get(path(namespace))


def path(namespace: str) -> str:
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    return f"{slices}/trainrun-agents-leader"


async def test_the_service_leads_to_the_leader_alone(api: KubeApi, namespace: str) -> None:
    found = await publish(api, namespace, "10.1.2.3")

    assert found["metadata"]["labels"] == {
        "kubernetes.io/service-name": "trainrun-agents",
        "endpointslice.kubernetes.io/managed-by": "trainrun",
        "app.kubernetes.io/managed-by": "trainrun",
    }
    assert found["addressType"] == "IPv4"
    assert found["endpoints"] == [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}]
    assert found["ports"] == [{"name": "https", "port": 8443, "protocol": "TCP"}]


async def test_the_next_leader_replaces_the_address(api: KubeApi, namespace: str) -> None:
    await publish(api, namespace, "10.1.2.3")

    found = await publish(api, namespace, "10.1.2.4")

    assert [endpoint["addresses"] for endpoint in found["endpoints"]] == [["10.1.2.4"]]


async def test_publishing_what_is_there_writes_nothing(api: KubeApi, namespace: str) -> None:
    before = await publish(api, namespace, "10.1.2.3")
    calls: list[str] = []
    api.observe_call = lambda verb, _code: calls.append(verb)

    await publish(api, namespace, "10.1.2.3")

    assert set(calls) == {"get"}
    assert await published(api, namespace) == before


async def test_what_somebody_else_put_there_is_put_right(api: KubeApi, namespace: str) -> None:
    await publish(api, namespace, "10.1.2.3")
    wrong = {
        "metadata": {"labels": {"kubernetes.io/service-name": "other"}},
        "endpoints": [{"addresses": ["10.6.6.6"]}, {"addresses": ["10.1.2.3"]}],
    }
    await patch(api, path(namespace), wrong)

    found = await publish(api, namespace, "10.1.2.3")

    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "trainrun-agents"
    assert [endpoint["addresses"] for endpoint in found["endpoints"]] == [["10.1.2.3"]]


async def test_a_leader_with_another_kind_of_address_can_follow(
    api: KubeApi, namespace: str
) -> None:
    await publish(api, namespace, "10.1.2.3")

    found = await publish(api, namespace, "fd00::1")

    assert (found["addressType"], found["endpoints"][0]["addresses"]) == ("IPv6", ["fd00::1"])


async def test_a_leaver_takes_its_own_address_back_and_nobody_elses(
    api: KubeApi, namespace: str
) -> None:
    await publish(api, namespace, "10.1.2.4")

    await withdraw_endpoint(api, namespace=namespace, service="trainrun-agents", address="10.1.2.3")
    assert (await published(api, namespace))["endpoints"]

    await withdraw_endpoint(api, namespace=namespace, service="trainrun-agents", address="10.1.2.4")
    try:
        await published(api, namespace)
    except NotFound:
        return
    raise AssertionError("it is still published")


async def a_service(api: KubeApi, namespace: str, **spec: Any) -> dict[str, Any]:
    service = {
        "metadata": {"name": "trainrun-agents"},
        "spec": {"ports": [{"port": 8443}], **spec},
    }
    return await api.post(f"/api/v1/namespaces/{namespace}/services", service)


async def place(api: KubeApi, namespace: str) -> str:
    return await service_place(api, namespace=namespace, service="trainrun-agents", port=8443)


@pytest.mark.case("operator", "Workers cannot resolve the Service, and all operators are replaced")
async def test_agents_whose_dns_knows_no_service_get_its_address(
    api: KubeApi, namespace: str
) -> None:
    made = await a_service(api, namespace)
    address = made["spec"]["clusterIP"]
    assert address.count(".") == 3
    assert await place(api, namespace) == f"{address}:8443"


async def test_a_service_without_an_address_of_its_own_is_no_way(
    api: KubeApi, namespace: str
) -> None:
    await a_service(api, namespace, clusterIP="None")
    assert await place(api, namespace) == ""
