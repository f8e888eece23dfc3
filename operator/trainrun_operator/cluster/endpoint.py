"""The EndpointSlice through which agents find the leader; it holds only the leader's address.

Layer: cluster. The Service has no selector, so only the leader sets its endpoint: where kube-proxy
is up to date, a new connection reaches the new leader. Where it is not, agents try every operator
(`kube/lease.py`). Where DNS does not know the Service's name, they dial its address.
"""

from __future__ import annotations

import ipaddress
import logging

from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.errors import AlreadyExists, Conflict, NotFound
from trainrun_operator.worlds.kubernetes.names import MANAGED_BY, MANAGED_BY_LABEL

PORT_NAME = "https"
"""As in the Service: kube-proxy matches the two by this name."""

TRIES = 5
"""Attempts while another process changes the slice."""

_log = logging.getLogger(__name__)


async def publish_endpoint(
    api: KubeApi, *, namespace: str, service: str, address: str, port: int
) -> None:
    """Point the Service at exactly this address; write only if needed. Raises KubeError."""
    wanted = _slice(service, address, port)
    for tries_left in reversed(range(TRIES)):
        try:
            await _publish(api, namespace, wanted)
            return
        except (Conflict, AlreadyExists):
            if not tries_left:
                raise


async def withdraw_endpoint(api: KubeApi, *, namespace: str, service: str, address: str) -> None:
    """Remove our address, if it is still the published one. Raises KubeError."""
    path = _path(namespace, f"{service}-leader")
    try:
        there = await api.get(path)
        if any(address in endpoint["addresses"] for endpoint in there["endpoints"] or ()):
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            await api.delete(path, body={"preconditions": version})
    except (NotFound, Conflict):
        _log.debug("another operator leads already")


async def service_place(api: KubeApi, *, namespace: str, service: str, port: int) -> str:
    """`address:port` of the Service itself, for agents whose DNS does not know its name; "" if it
    has no cluster IP. Raises KubeError."""
    there = await api.get(f"/api/v1/namespaces/{namespace}/services/{service}")
    address = there["spec"].get("clusterIP") or "None"
    return "" if address == "None" else place_of(address, port)


def place_of(address: str, port: int) -> str:
    """`address:port`, ready to dial."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


async def _publish(api: KubeApi, namespace: str, wanted: Object) -> None:
    path = _path(namespace, wanted["metadata"]["name"])
    try:
        there = await api.get(path)
    except NotFound:
        await api.post(_path(namespace), wanted)
        return
    if there["addressType"] != wanted["addressType"]:  # this field is immutable
        await api.delete(path, body={"preconditions": {"uid": there["metadata"]["uid"]}})
        await api.post(_path(namespace), wanted)
        return
    metadata = {**there["metadata"], "labels": wanted["metadata"]["labels"]}
    updated = {**there, **wanted, "metadata": metadata}
    if updated != there:
        await api.put(path, updated)


def _slice(service: str, address: str, port: int) -> Object:
    version = ipaddress.ip_address(address).version
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-leader",
            "labels": {
                "kubernetes.io/service-name": service,
                # The slice's manager: other controllers leave it alone.
                "endpointslice.kubernetes.io/managed-by": MANAGED_BY,
                MANAGED_BY_LABEL: MANAGED_BY,
            },
        },
        "addressType": f"IPv{version}",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP"}],
    }


def _path(namespace: str, name: str = "") -> str:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    return f"{path}/{name}" if name else path
