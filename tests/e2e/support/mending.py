"""Nodes as they were before a test broke them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.api import ApiError
from testbed.faults import nodes

if TYPE_CHECKING:
    from testbed.cluster import Cluster


def mend(cluster: Cluster) -> None:
    """Give every node its power, its network, its place in the cluster, and take its taints away.

    Costs nothing where nothing was broken.
    """
    for node in cluster.nodes:
        if not node.is_on():
            node.power_on()
        if _is_registered(cluster, node.name):
            nodes.uncordon(cluster, node.name)
            nodes.heal(cluster, node.name)
        else:
            nodes.register(cluster, node.name)
        for taint in cluster.api.get(f"/api/v1/nodes/{node.name}")["spec"].get("taints", []):
            if not taint["key"].startswith("node.kubernetes.io/"):
                nodes.untaint(cluster, node.name, taint["key"])


def _is_registered(cluster: Cluster, node: str) -> bool:
    try:
        cluster.api.get(f"/api/v1/nodes/{node}")
    except ApiError as error:
        if error.status == 404:
            return False
        raise
    return True
