"""Bridge, network namespaces and cables of a cluster.

A node's cable is deleted before its namespace: sockets of killed processes keep a namespace alive
for minutes after its name is gone, and a cable inside it as long, which the next start would
trip over.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import ClusterBroken
from testbed.shell import output, succeeds

if TYPE_CHECKING:
    from testbed.addresses import Addresses, NodeAddresses

_NAMESPACES = Path("/run/netns")


def add_bridge(addresses: Addresses) -> None:
    """The network that the nodes are plugged into, with this machine on it."""
    _batch(
        f"link add {addresses.bridge} type bridge",
        f"addr add {addresses.host_network} dev {addresses.bridge}",
        f"link set {addresses.bridge} up",
    )


def add_node(addresses: Addresses, node: NodeAddresses) -> None:
    """Namespace, cable, and routes both ways between this machine, the node and all pods."""
    output("ip", "netns", "add", node.namespace)
    _batch(
        f"link add {node.veth} type veth peer name eth0 netns {node.namespace}",
        f"link set {node.veth} master {addresses.bridge} up",
    )
    others = (other for other in addresses.all_nodes() if other.name != node.name)
    _batch(
        "link set lo up",
        f"addr add {node.ip}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {addresses.host}",
        *(f"route add {other.pods} via {other.ip}" for other in others),
        namespace=node.namespace,
    )
    _batch(f"route replace {node.pods} via {node.ip}")


def set_cable(node: NodeAddresses, *, plugged: bool) -> None:
    """Pull a node's cable, or plug it in again; its addresses and routes stay."""
    output("ip", "link", "set", node.veth, "up" if plugged else "down")


def is_plugged(node: NodeAddresses) -> bool:
    """Whether the node's cable is in."""
    (link,) = json.loads(output("ip", "-j", "link", "show", node.veth))
    return "UP" in link["flags"]


def remove(addresses: Addresses) -> None:
    """Remove all of it, however much there is."""
    for node in addresses.all_nodes():
        succeeds("ip", "link", "del", node.veth)
        if (_NAMESPACES / node.namespace).exists():
            output("ip", "netns", "del", node.namespace)
    succeeds("ip", "link", "del", addresses.bridge)
    deadline = time.monotonic() + 10
    while left := left_over(addresses):
        if time.monotonic() > deadline:
            raise ClusterBroken(f"these interfaces did not go: {' '.join(left)}")
        time.sleep(0.05)


def left_over(addresses: Addresses) -> list[str]:
    """Interfaces and network namespaces of the cluster that are there right now."""
    links = [link["ifname"] for link in json.loads(output("ip", "-j", "link", "show"))]
    mine = {addresses.bridge, *(node.veth for node in addresses.all_nodes())}
    namespaces = [
        node.namespace for node in addresses.all_nodes() if (_NAMESPACES / node.namespace).exists()
    ]
    return [name for name in links if name in mine] + namespaces


def _batch(*commands: str, namespace: str | None = None) -> None:
    within = ["-n", namespace] if namespace else []
    output("ip", *within, "-batch", "-", text="\n".join(commands) + "\n")
