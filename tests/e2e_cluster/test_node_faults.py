"""Power, cables, taints, and nodes that are taken away: what Kubernetes makes of each fault."""

from __future__ import annotations

import functools
import time
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
def test_a_node_that_loses_power_turns_not_ready_and_comes_back(cluster: Cluster) -> None:
    start_pod(cluster, "victim", "sleep", "infinity", node="n2")
    nodes.power_off(cluster, "n2")
    started = time.monotonic()
    nodes.wait_until_not_ready(cluster, "n2", timeout=15)
    assert 2 < time.monotonic() - started < 10
    nodes.power_on(cluster, "n2")
    assert ends(cluster, "victim")["exitCode"] != 0
    start_pod(cluster, "after", "sleep", "infinity", node="n2", limits={GPU: "8"})


@pytest.mark.slow
def test_peers_see_a_crash_as_closed_connections_and_a_power_loss_as_silence(
    cluster: Cluster,
) -> None:
    start_pod(cluster, "peer", "sleep", "infinity", node="n1")
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
        start_pod(cluster, "server", "python", "-c", listen, node="n3")
        host = pod(cluster, "server")["status"]["podIP"]
        # The server needs a moment until it listens.
        eventually(functools.partial(_is_open, cluster, "peer", host, 8080), timeout=20)
        start_pod(cluster, "watch", "python", "-u", "-c", watch.format(host=host), node="n1")
        eventually(lambda: "connected" in cluster.kubectl("logs", "watch"))
        fault(cluster, "n3")
        ends(cluster, "watch")
        assert seen in cluster.kubectl("logs", "watch")
        nodes.power_on(cluster, "n3")
        cluster.kubectl("delete", "pod", "server", "watch", "--grace-period=0", "--force")


def test_a_partitioned_node_runs_on_and_returns(cluster: Cluster) -> None:
    start_pod(cluster, "inside", *SERVE, node="n2")
    nodes.partition(cluster, "n2")
    nodes.wait_until_not_ready(cluster, "n2")
    assert condition(cluster, "inside", "Ready")["status"] == "False"
    nodes.heal(cluster, "n2")
    eventually(lambda: condition(cluster, "inside", "Ready")["status"] == "True")
    assert pod(cluster, "inside")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_node_cut_off_from_the_api_server_alone_still_reaches_its_peers(
    cluster: Cluster,
) -> None:
    start_pod(cluster, "server", *SERVE, node="n2")
    start_pod(cluster, "peer", "sleep", "infinity", node="n1")
    host = pod(cluster, "server")["status"]["podIP"]
    eventually(lambda: _is_open(cluster, "peer", host, 8080), timeout=20)
    nodes.partition_from_api_server(cluster, "n2")
    nodes.wait_until_not_ready(cluster, "n2")
    assert _is_open(cluster, "peer", host, 8080)
    nodes.heal(cluster, "n2")


def test_a_dead_kubelet_makes_the_node_not_ready_while_its_pods_run_on(cluster: Cluster) -> None:
    start_pod(cluster, "inside", "sleep", "infinity", node="n3")
    nodes.kill_kubelet(cluster, "n3")
    nodes.wait_until_not_ready(cluster, "n3")
    nodes.start_kubelet(cluster, "n3")
    assert pod(cluster, "inside")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_noexecute_taint_deletes_pods_with_its_reason(cluster: Cluster) -> None:
    start_pod(cluster, "victim", "sleep", "infinity", node="n1", terminationGracePeriodSeconds=5)
    nodes.taint(cluster, "n1", "maintenance")
    eventually(lambda: condition(cluster, "victim", "DisruptionTarget"))
    assert condition(cluster, "victim", "DisruptionTarget")["reason"] == "DeletionByTaintManager"
    nodes.untaint(cluster, "n1", "maintenance")


def test_a_drained_node_is_empty_until_it_is_uncordoned(cluster: Cluster) -> None:
    start_pod(cluster, "victim", "sleep", "infinity", node="n1")
    nodes.drain(cluster, "n1")
    with pytest.raises(ApiError, match="not found"):
        pod(cluster, "victim")
    start_pod(cluster, "next", "sleep", "infinity", node="n1", wait=False)
    eventually(lambda: condition(cluster, "next", "PodScheduled"))
    assert "unschedulable" in condition(cluster, "next", "PodScheduled")["message"]
    nodes.uncordon(cluster, "n1")
    eventually(lambda: pod(cluster, "next")["status"]["phase"] == "Running")


def test_a_deleted_node_joins_again_with_its_gpus(cluster: Cluster) -> None:
    nodes.delete(cluster, "n3")
    with pytest.raises(ApiError, match='nodes "n3" not found'):
        cluster.api.get("/api/v1/nodes/n3")
    nodes.register(cluster, "n3")
    eventually(lambda: cluster.api.get("/api/v1/nodes/n3")["status"]["allocatable"].get(GPU) == "8")
    start_pod(cluster, "after", "sleep", "infinity", node="n3", limits={GPU: "8"})


def _is_open(cluster: Cluster, name: str, host: str, port: int) -> bool:
    script = f"""
import socket
try: socket.create_connection(({host!r}, {port}), 2).close(); print("open")
except OSError as error: print(error)
"""
    return run_in(cluster, name, script) == "open"
