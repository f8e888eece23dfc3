"""What happens to nodes: power, cables, partitions, taints, and nodes that are taken away."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Literal

from testbed.readiness import offer_gpus, wait_for_node

if TYPE_CHECKING:
    from testbed.cluster import Cluster

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
_TABLE = "inet trainrun_fault"
# Both what the node itself sends and what its pods send; the rules see addresses behind services.
_RULES = """
table {table} {{
  chain sent {{
    type filter hook output priority filter;
    {rule}
  }}
  chain passed_on {{
    type filter hook forward priority filter;
    {rule}
  }}
  chain received {{
    type filter hook input priority filter;
    {received}
  }}
}}
"""


def power_off(cluster: Cluster, node: str) -> None:
    """Power loss: peers see nothing at all, as in reality."""
    cluster.node(node).power_off()


def crash(cluster: Cluster, node: str) -> None:
    """All processes end at once, and the kernel still closes their connections: peers see it."""
    cluster.node(node).crash()


def power_on(cluster: Cluster, node: str, *, timeout: float = 180.0) -> None:
    """Start a node again, its disk as it was; return once it is Ready."""
    cluster.node(node).power_on()
    wait_for_node(cluster.api, node, ready=True, timeout=timeout)


def partition(cluster: Cluster, node: str) -> None:
    """Cut a node off from everything; what runs on it runs on."""
    cluster.node(node).unplug()


def partition_from_api_server(cluster: Cluster, node: str) -> None:
    """Cut a node and its pods off from the API server alone; pods still reach each other."""
    slice_ = cluster.api.get(
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
    )
    address, port = slice_["endpoints"][0]["addresses"][0], slice_["ports"][0]["port"]
    rule = f"ip daddr {address} tcp dport {port} drop"
    _filter(cluster, node, rule=rule, received="")


def lose_packets(cluster: Cluster, node: str, *, percent: int) -> None:
    """Let a node lose that share of the packets that it and its pods receive."""
    lose = f"numgen random mod 100 < {percent} drop"
    _filter(cluster, node, rule="", received=lose)


def heal(cluster: Cluster, node: str, *, timeout: float = 60.0) -> None:
    """Undo what was done to a node's network; return once the node is Ready."""
    found = cluster.node(node)
    found.plug()
    found.run("nft", "-f", "-", text=f"table {_TABLE}\ndelete table {_TABLE}\n")
    wait_for_node(cluster.api, node, ready=True, timeout=timeout)


def wait_until_not_ready(cluster: Cluster, node: str, *, timeout: float = 30.0) -> None:
    """Return once Kubernetes has noticed that the node is lost."""
    wait_for_node(cluster.api, node, ready=False, timeout=timeout)


def wait_until_ready(cluster: Cluster, node: str, *, timeout: float = 60.0) -> None:
    """Return once the node is Ready and without a lost node's taints."""
    wait_for_node(cluster.api, node, ready=True, timeout=timeout)


def kill_kubelet(cluster: Cluster, node: str) -> None:
    """End the kubelet alone: the node turns NotReady, its pods run on."""
    cluster.node(node).signal_kubelet(signal.SIGKILL)


def start_kubelet(cluster: Cluster, node: str, *, timeout: float = 60.0) -> None:
    """Start it again; return once the node is Ready."""
    cluster.node(node).start_kubelet()
    wait_for_node(cluster.api, node, ready=True, timeout=timeout)


def taint(
    cluster: Cluster, node: str, key: str, *, value: str = "", effect: Effect = "NoExecute"
) -> None:
    """Add a taint; with NoExecute the pods that do not tolerate it are deleted."""
    cluster.kubectl("taint", "node", node, f"{key}={value}:{effect}", "--overwrite")


def untaint(cluster: Cluster, node: str, key: str) -> None:
    """Remove all taints of that key."""
    cluster.kubectl("taint", "node", node, f"{key}-")


def cordon(cluster: Cluster, node: str) -> None:
    """Nothing new is placed on the node."""
    cluster.kubectl("cordon", node)


def uncordon(cluster: Cluster, node: str) -> None:
    """After `cordon` and `drain`."""
    cluster.kubectl("uncordon", node)


def drain(cluster: Cluster, node: str, *, timeout: float = 120.0) -> None:
    """Cordon a node and evict everything from it, as an administrator does; return when done."""
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force")
    cluster.kubectl("drain", node, *options, f"--timeout={timeout:.0f}s", timeout=timeout + 10)


def delete(cluster: Cluster, node: str) -> None:
    """Delete the Node object, as a cloud does when a machine is gone; its kubelet runs on."""
    cluster.api.delete(f"/api/v1/nodes/{node}")


def register(cluster: Cluster, node: str, *, timeout: float = 60.0) -> None:
    """After `delete`: let the node join again; return once it is Ready and offers GPUs."""
    found = cluster.node(node)
    if found.is_on():
        # A kubelet registers only when it starts.
        found.signal_kubelet(signal.SIGKILL)
        found.start_kubelet()
    else:
        found.power_on()
    wait_for_node(cluster.api, node, ready=True, timeout=timeout)
    offer_gpus(cluster.api, node)


def _filter(cluster: Cluster, node: str, *, rule: str, received: str) -> None:
    """Put the node's faulty filter in place, instead of the one before."""
    fresh = f"table {_TABLE}\ndelete table {_TABLE}\n"
    rules = _RULES.format(table=_TABLE, rule=rule, received=received)
    cluster.node(node).run("nft", "-f", "-", text=fresh + rules)
