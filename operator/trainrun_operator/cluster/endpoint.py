"""Where agents find the leader: one EndpointSlice with its address alone.

Layer: cluster. The Service has no selector, so nobody but the leader says what is behind
it: where kube-proxy is up to date, a new leader is found by a fresh connection. Where it is not,
agents ask every operator (`kube/lease.py`). Where the Service's name is not found, they dial
its address.
"""

from __future__ import annotations

import ipaddress
import logging

from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.errors import AlreadyExists, Conflict, NotFound
from trainrun_operator.worlds.kubernetes.names import MANAGED_BY, MANAGED_BY_LABEL

PORT_NAME = "https"
"""As in the Service: kube-proxy joins the two by this name."""

TRIES = 5
"""Against somebody who changes the slice at the same moment."""

_log = logging.getLogger(__name__)


async def publish_endpoint(
    api: KubeApi, *, namespace: str, service: str, address: str, port: int
) -> None:
    """Let the Service lead to exactly this address; writes only what differs. Raises KubeError."""
    wanted = _slice(service, address, port)
    for tries_left in reversed(range(TRIES)):
        try:
            await _publish(api, namespace, wanted)
            return
        except (Conflict, AlreadyExists):
            if not tries_left:
                raise


async def withdraw_endpoint(api: KubeApi, *, namespace: str, service: str, address: str) -> None:
    """Take our address back, if it is still the one that is published. Raises KubeError."""
    path = _path(namespace, f"{service}-leader")
    try:
        there = await api.get(path)
        if any(address in endpoint["addresses"] for endpoint in there["endpoints"] or ()):
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            await api.delete(path, body={"preconditions": version})
    except (NotFound, Conflict):
        _log.debug("somebody else leads already")


async def service_place(api: KubeApi, *, namespace: str, service: str, port: int) -> str:
    """`address:port` of the Service itself, for agents whose DNS does not know its name; "" where
    it has no address of its own. Raises KubeError."""
    there = await api.get(f"/api/v1/namespaces/{namespace}/services/{service}")
    address = there["spec"].get("clusterIP") or "None"
    return "" if address == "None" else place_of(address, port)


def place_of(address: str, port: int) -> str:
    """`address:port`, as it is dialled."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


async def _publish(api: KubeApi, namespace: str, wanted: Object) -> None:
    path = _path(namespace, wanted["metadata"]["name"])
    try:
        there = await api.get(path)
    except NotFound:
        await api.post(_path(namespace), wanted)
        return
    if there["addressType"] != wanted["addressType"]:  # it cannot be changed
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
                # Whose slice it is: other controllers leave it alone.
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
