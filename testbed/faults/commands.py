"""`python -m testbed fault ...`: every fault for people, by the functions of the tests."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import click

from testbed.cluster import DEFAULT_NAME, NAME_VARIABLE, Cluster
from testbed.faults import memory, nodes, pods, processes, servers

_NAME = click.option(
    "--name", envvar=NAME_VARIABLE, default=DEFAULT_NAME, show_default=True, help="of the cluster"
)
_NAMESPACE = click.option("-n", "--namespace", default="default", show_default=True)
_MATCHING = click.option("--matching", default="", help="only processes with this in their command")

_NODE_FAULTS: dict[str, Callable[[Cluster, str], None]] = {
    "power-off": nodes.power_off,
    "power-on": nodes.power_on,
    "crash": nodes.crash,
    "partition": nodes.partition,
    "partition-api": nodes.partition_from_api_server,
    "heal": nodes.heal,
    "kill-kubelet": nodes.kill_kubelet,
    "start-kubelet": nodes.start_kubelet,
    "drain": nodes.drain,
    "uncordon": nodes.uncordon,
    "delete-node": nodes.delete,
    "register-node": nodes.register,
}
_SERVER_FAULTS: dict[str, Callable[[Cluster], None]] = {
    "api-down": servers.stop_api_server,
    "api-up": servers.start_api_server,
    "s3-down": servers.stop_s3,
    "s3-up": servers.start_s3,
    "s3-freeze": servers.freeze_s3,
    "s3-thaw": servers.thaw_s3,
    "s3-reject-keys": servers.reject_s3_keys,
    "s3-accept-keys": servers.accept_s3_keys,
}
_SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "thaw": signal.SIGCONT}


@click.group()
def fault() -> None:
    """Break something, or make it good again."""


def _summary(function: Callable[..., None]) -> str:
    return (function.__doc__ or "").splitlines()[0]


def _add_node_fault(title: str, function: Callable[[Cluster, str], None]) -> None:
    @fault.command(title, help=_summary(function))
    @_NAME
    @click.argument("node")
    def run(name: str, node: str) -> None:
        function(Cluster(name), node)


def _add_server_fault(title: str, function: Callable[[Cluster], None]) -> None:
    @fault.command(title, help=_summary(function))
    @_NAME
    def run(name: str) -> None:
        function(Cluster(name))


def _add_signal(title: str, which: signal.Signals) -> None:
    @fault.command(title, help=f"Send {which.name} to processes of a pod.")
    @_NAME
    @_NAMESPACE
    @_MATCHING
    @click.argument("pod")
    def run(name: str, namespace: str, matching: str, pod: str) -> None:
        hit = processes.signal_processes(
            Cluster(name), pod, which, matching=matching, namespace=namespace
        )
        for each in hit:
            click.echo(f"{which.name} {each.pid} on {each.node}: {each.command}")


@fault.command()
@_NAME
@click.argument("node")
@click.argument("key")
@click.option("--value", default="")
def taint(name: str, node: str, key: str, value: str) -> None:
    """Taint a node NoExecute: pods that do not tolerate it are deleted."""
    nodes.taint(Cluster(name), node, key, value=value)


@fault.command()
@_NAME
@click.argument("node")
@click.argument("key")
def untaint(name: str, node: str, key: str) -> None:
    """Remove a taint."""
    nodes.untaint(Cluster(name), node, key)


@fault.command()
@_NAME
@_NAMESPACE
@click.argument("pod")
def evict(name: str, namespace: str, pod: str) -> None:
    """Evict a pod through the API."""
    pods.evict(Cluster(name), pod, namespace=namespace)


@fault.command()
@_NAME
@_NAMESPACE
@click.option("--gpus", default=8, show_default=True, help="for each of them")
@click.option("--pods", "count", default=1, show_default=True)
@click.option("--node", default=None, help="on this one")
def preempt(name: str, namespace: str, gpus: int, count: int, node: str | None) -> None:
    """Create pods of a high priority, for which others must go."""
    created = pods.preempt(Cluster(name), gpus=gpus, pods=count, node=node, namespace=namespace)
    click.echo("\n".join(created))


@fault.command()
@_NAME
@_NAMESPACE
def relieve(name: str, namespace: str) -> None:
    """Delete the pods of `preempt`."""
    pods.relieve(Cluster(name), namespace=namespace)


@fault.command("out-of-memory")
@_NAME
@_NAMESPACE
@click.option("--victims", default="", help="processes with this in their command go first")
@click.argument("pod")
def out_of_memory(name: str, namespace: str, victims: str, pod: str) -> None:
    """Fill the memory of a pod's container up to its limit."""
    memory.exceed_memory_limit(Cluster(name), pod, victims=victims, namespace=namespace)


@fault.command("lose-packets")
@_NAME
@click.option("--percent", default=20, show_default=True)
@click.argument("node")
def lose_packets(name: str, percent: int, node: str) -> None:
    """Let a node lose packets; `heal` ends it."""
    nodes.lose_packets(Cluster(name), node, percent=percent)


@fault.command("s3-slow")
@_NAME
@click.option("--delay", default=0.5, show_default=True, help="seconds per piece of an answer")
def s3_slow(name: str, delay: float) -> None:
    """Offer a slow way to the S3 server, for runs that name it, until Ctrl-C."""
    with servers.slow_s3(Cluster(name), delay=delay) as proxy:
        click.echo(f"endpointURL: {proxy.endpoint}")
        while True:
            time.sleep(3600)


for _title, _node_fault in _NODE_FAULTS.items():
    _add_node_fault(_title, _node_fault)
for _title, _server_fault in _SERVER_FAULTS.items():
    _add_server_fault(_title, _server_fault)
for _title, _signal in _SIGNALS.items():
    _add_signal(_title, _signal)
