"""When a cluster can be used: more than Ready nodes, whoever started it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.api import JSON_PATCH, ApiError, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from testbed.api import Api

GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8


def wait_until_usable(
    api: Api, nodes: Sequence[str], *, timeout: float, log: Callable[[], str]
) -> None:
    """Return once all nodes are Ready and offer GPUs, and pods are admitted."""

    def missing() -> str:
        found = {node["metadata"]["name"]: node for node in api.get("/api/v1/nodes")["items"]}
        for name in nodes:
            if name not in found:
                return f"node {name} has not registered"
            if GPU not in found[name]["status"].get("capacity", {}):
                offer_gpus(api, name)
            if found[name]["status"].get("allocatable", {}).get(GPU) != str(GPUS_PER_NODE):
                return f"node {name} offers no GPUs"
            if not _is_ready(found[name]):
                return f"node {name} is not Ready"
        try:
            # Without it the first pod is refused.
            api.get("/api/v1/namespaces/default/serviceaccounts/default")
        except ApiError as error:
            if error.status == 404:
                return "there is no service account default/default"
            raise
        return ""

    wait_until(missing, timeout=timeout, log=log)


def wait_for_node(api: Api, name: str, *, ready: bool, timeout: float) -> None:
    """Return once the node is Ready and without the taints of a lost node, or no longer Ready."""

    def missing() -> str:
        node = api.get(f"/api/v1/nodes/{name}")
        if _is_ready(node) != ready:
            return f"node {name} is {'not ' if ready else ''}Ready"
        taints = [taint["key"] for taint in node["spec"].get("taints", [])]
        if ready and any(key.startswith("node.kubernetes.io/") for key in taints):
            return f"node {name} is tainted: {', '.join(taints)}"
        return ""

    wait_until(missing, timeout=timeout, every=0.1, log=lambda: "")


def offer_gpus(api: Api, node: str) -> None:
    """Let a node offer GPUs that it does not have; the kubelet keeps the number."""
    path = f"/status/capacity/{GPU.replace('/', '~1')}"
    change = [{"op": "add", "path": path, "value": str(GPUS_PER_NODE)}]
    api.patch(f"/api/v1/nodes/{node}/status", change, JSON_PATCH)


def _is_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
