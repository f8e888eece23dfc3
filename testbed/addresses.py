"""Which addresses, interfaces and cgroups belong to a cluster: everything follows from its index.

Two clusters differ in every one of them, so that they run side by side without knowing of each
other. What only the control plane itself talks to listens on loopback addresses of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from testbed.shell import output

CLUSTERS = 16
"""So many clusters can run on one machine."""
API_PORT = 6443
S3_PORT = 9000


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddresses:
    """What one node is called and where it is."""

    name: str
    ip: str
    pods: str
    """The subnet of its pods."""
    namespace: str
    """Its network namespace."""
    veth: str
    """The end of its cable on the bridge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The addresses of cluster number `index`."""

    index: int
    nodes: int = 3

    @property
    def bridge(self) -> str:
        return f"trc{self.index}"

    @property
    def host(self) -> str:
        """This machine as the nodes and pods see it; API server, DNS and S3 listen here."""
        return f"10.98.{self.index}.1"

    @property
    def host_network(self) -> str:
        return f"{self.host}/24"

    @property
    def loopback(self) -> str:
        """For what must not be reachable from pods."""
        return f"127.98.{self.index}.1"

    @property
    def pods(self) -> str:
        return f"10.{112 + self.index}.0.0/16"

    @property
    def services(self) -> str:
        return f"10.{144 + self.index}.0.0/16"

    @property
    def api_service(self) -> str:
        """The address of the service `kubernetes`: the first of the range."""
        return f"10.{144 + self.index}.0.1"

    @property
    def api_url(self) -> str:
        return f"https://{self.host}:{API_PORT}"

    @property
    def s3_url(self) -> str:
        return f"http://{self.host}:{S3_PORT}"

    @property
    def cgroup(self) -> str:
        """The cgroup that holds the pods of all nodes, in every hierarchy."""
        return f"trainrun-{self.index}"

    def all_nodes(self) -> tuple[NodeAddresses, ...]:
        return tuple(self.node(number) for number in range(1, self.nodes + 1))

    def node(self, number: int) -> NodeAddresses:
        """The node of a number from 1."""
        return NodeAddresses(
            name=f"n{number}",
            ip=f"10.98.{self.index}.{10 + number}",
            pods=f"10.{112 + self.index}.{number}.0/24",
            namespace=f"{self.bridge}-n{number}",
            veth=f"{self.bridge}v{number}",
        )


def is_free(index: int) -> bool:
    """Whether nothing on this machine has an address in the ranges of that index."""
    wanted = Addresses(index=index)
    prefixes = tuple(
        network.rsplit(".", parts)[0] + "."
        for network, parts in ((wanted.host_network, 1), (wanted.pods, 2), (wanted.services, 2))
    )
    used = [route.get("dst", "") for route in json.loads(output("ip", "-j", "route", "show"))]
    links = [link["ifname"] for link in json.loads(output("ip", "-j", "link", "show"))]
    return wanted.bridge not in links and not any(dst.startswith(prefixes) for dst in used)
