"""Power, cables, taints, and nodes that are taken away: what Kubernetes makes of each fault."""

from __future__ import annotations

import functools
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from testbed.api import ApiError
from testbed.faults import nodes
from testbed.readiness import GPU
from tests.e2e_cluster.pods import SERVE, condition, ends, pod, run_in, start_pod
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from testbed.cluster import Cluster


@pytest.mark.slow
def test_a_node_that_loses_power_turns_not_ready_and_comes_back(
    cluster: Cluster, node: str
) -> None:
    start_pod(cluster, "victim", "sleep", "infinity", node=node)
    cut_off = time.time()
    nodes.power_off(cluster, node)
    nodes.wait_until_not_ready(cluster, node, timeout=15)
    # The fault itself may take longer than that: on kind it returns when all is cleaned up.
    assert 2 < not_ready_since(cluster, node) - cut_off < 10
    nodes.power_on(cluster, node)
    assert ends(cluster, "victim")["exitCode"] != 0
    start_pod(cluster, "after", "sleep", "infinity", node=node, limits={GPU: "8"})


def not_ready_since(cluster: Cluster, node: str) -> float:
    """When Kubernetes noticed that the node is lost, in seconds since 1970, rounded down."""
    conditions = cluster.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    (ready,) = [each for each in conditions if each["type"] == "Ready"]
    return datetime.fromisoformat(ready["lastTransitionTime"]).timestamp()


@pytest.mark.slow
def test_peers_see_a_crash_as_closed_connections_and_a_power_loss_as_silence(
    cluster: Cluster, node: str, sound_node: str
) -> None:
    start_pod(cluster, "peer", "sleep", "infinity", node=sound_node)
    listen = """
import socket, time
with socket.create_server(("", 8080)) as server:
    kept = []
    while True: kept.append(server.accept())
"""
    watch = """
import socket
with socket.create_connection(({host!r}, 8080), 10) as connection:
    connection.settimeout(6)
    print("connected", flush=True)
    try: print("closed", connection.recv(1))
    except ConnectionResetError: print("closed")
    except TimeoutError: print("silence")
"""
    for fault, seen in ((nodes.crash, "closed"), (nodes.power_off, "silence")):
        start_pod(cluster, "server", "python", "-c", listen, node=node)
        host = pod(cluster, "server")["status"]["podIP"]
        # The server needs a moment until it listens.
        eventually(functools.partial(_is_open, cluster, "peer", host, 8080), timeout=20)
        start_pod(cluster, "watch", "python", "-u", "-c", watch.format(host=host), node=sound_node)
        eventually(lambda: "connected" in cluster.kubectl("logs", "watch"))
        fault(cluster, node)
        ends(cluster, "watch")
        assert seen in cluster.kubectl("logs", "watch")
        nodes.power_on(cluster, node)
        cluster.kubectl("delete", "pod", "server", "watch", "--grace-period=0", "--force")


def test_a_partitioned_node_runs_on_and_returns(cluster: Cluster, node: str) -> None:
    start_pod(cluster, "inside", *SERVE, node=node)
    nodes.partition(cluster, node)
    nodes.wait_until_not_ready(cluster, node)
    assert condition(cluster, "inside", "Ready")["status"] == "False"
    nodes.heal(cluster, node)
    eventually(lambda: condition(cluster, "inside", "Ready")["status"] == "True")
    assert pod(cluster, "inside")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_node_cut_off_from_the_api_server_alone_still_reaches_its_peers(
    cluster: Cluster, node: str, sound_node: str
) -> None:
    start_pod(cluster, "server", *SERVE, node=node)
    start_pod(cluster, "peer", "sleep", "infinity", node=sound_node)
    host = pod(cluster, "server")["status"]["podIP"]
    eventually(lambda: _is_open(cluster, "peer", host, 8080), timeout=20)
    nodes.partition_from_api_server(cluster, node)
    nodes.wait_until_not_ready(cluster, node)
    assert _is_open(cluster, "peer", host, 8080)
    nodes.heal(cluster, node)


def test_a_dead_kubelet_makes_the_node_not_ready_while_its_pods_run_on(
    cluster: Cluster, node: str
) -> None:
    start_pod(cluster, "inside", "sleep", "infinity", node=node)
    nodes.kill_kubelet(cluster, node)
    nodes.wait_until_not_ready(cluster, node)
    nodes.start_kubelet(cluster, node)
    assert pod(cluster, "inside")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_noexecute_taint_deletes_pods_with_its_reason(cluster: Cluster, node: str) -> None:
    start_pod(cluster, "victim", "sleep", "infinity", node=node, terminationGracePeriodSeconds=5)
    nodes.taint(cluster, node, "maintenance")
    eventually(lambda: condition(cluster, "victim", "DisruptionTarget"))
    assert condition(cluster, "victim", "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    nodes.untaint(cluster, node, "maintenance")


def test_a_drained_node_is_empty_until_it_is_uncordoned(cluster: Cluster, node: str) -> None:
    start_pod(cluster, "victim", "sleep", "infinity", node=node)
    nodes.drain(cluster, node)
    with pytest.raises(ApiError, match="not found"):
        pod(cluster, "victim")
    start_pod(cluster, "next", "sleep", "infinity", node=node, wait=False)
    eventually(lambda: condition(cluster, "next", "PodScheduled"))
    assert "unschedulable" in condition(cluster, "next", "PodScheduled")["message"]
    nodes.uncordon(cluster, node)
    eventually(lambda: pod(cluster, "next")["status"]["phase"] == "Running")


def test_a_deleted_node_joins_again_with_its_gpus(cluster: Cluster, node: str) -> None:
    nodes.delete(cluster, node)
    with pytest.raises(ApiError, match=f'nodes "{node}" not found'):
        cluster.api.get(f"/api/v1/nodes/{node}")
    nodes.register(cluster, node)
    eventually(
        lambda: cluster.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"].get(GPU) == "8"
    )
    start_pod(cluster, "after", "sleep", "infinity", node=node, limits={GPU: "8"})


def _is_open(cluster: Cluster, name: str, host: str, port: int) -> bool:
    script = f"""
import socket
try: socket.create_connection(({host!r}, {port}), 2).close(); print("open")
except OSError as error: print(error)
"""
    return run_in(cluster, name, script) == "open"
