"""Processes, memory, evictions and preemption: what Kubernetes makes of each fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.errors import ClusterBroken
from testbed.faults import memory, pods, processes
from testbed.readiness import GPU
from tests.e2e_cluster.pods import condition, ends, pod, start_pod
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from testbed.cluster import Cluster

PARENT = """
import subprocess, sys, time
code = "import time; b = b'x' * 30_000_000; time.sleep(1000)  # the trainer"
child = subprocess.Popen([sys.executable, "-c", code])
code = child.wait()
print("child ended with", code, flush=True)
time.sleep(1)  # the container runtime hears of an OOM kill and of our end on two ways: first that
sys.exit(3)
"""


def trains(cluster: Cluster, name: str) -> bool:
    """The trainer is there, and no longer a copy of its parent."""
    return any(p.command.endswith("# the trainer") for p in processes.processes(cluster, name))


def test_one_process_of_a_pod_is_killed_by_its_command_line(cluster: Cluster) -> None:
    start_pod(cluster, "worker", "python", "-c", PARENT)
    eventually(lambda: trains(cluster, "worker"))
    (killed,) = processes.kill(cluster, "worker", matching="# the trainer$")
    assert "time.sleep(1000)" in killed.command
    assert ends(cluster, "worker")["exitCode"] == 3
    assert "child ended with -9" in cluster.kubectl("logs", "worker")


def test_a_pattern_that_matches_nothing_says_what_runs(cluster: Cluster) -> None:
    start_pod(cluster, "worker", "sleep", "infinity")
    with pytest.raises(ClusterBroken, match="no process of default/worker matches 'torch'") as told:
        processes.kill(cluster, "worker", matching="torch")
    assert "sleep infinity" in str(told.value)


def test_a_frozen_pod_does_nothing_until_it_is_thawed(cluster: Cluster) -> None:
    count = "import time\nfor n in range(10**6): print(n, flush=True); time.sleep(0.05)"
    start_pod(cluster, "counter", "python", "-c", count)
    eventually(lambda: cluster.kubectl("logs", "counter"))
    processes.freeze(cluster, "counter")
    eventually(lambda: _stands_still(cluster), timeout=30)
    before = cluster.kubectl("logs", "counter")
    processes.thaw(cluster, "counter")
    eventually(lambda: cluster.kubectl("logs", "counter") != before)


def test_memory_beyond_the_limit_kills_the_container_as_out_of_memory(cluster: Cluster) -> None:
    start_pod(cluster, "eater", "python", "-c", PARENT, limits={"memory": "64Mi"})
    eventually(lambda: trains(cluster, "eater"))
    memory.exceed_memory_limit(cluster, "eater", victims="# the trainer$")
    ended = ends(cluster, "eater")
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 3)


def test_the_one_that_was_named_goes_also_where_it_is_smaller_than_its_parent(
    cluster: Cluster,
) -> None:
    small = PARENT.replace("b = b'x' * 30_000_000; ", "")
    start_pod(cluster, "eater", "python", "-c", small, limits={"memory": "64Mi"})
    eventually(lambda: trains(cluster, "eater"))
    memory.exceed_memory_limit(cluster, "eater", victims="# the trainer$")
    ended = ends(cluster, "eater")
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 3)


def test_memory_is_not_filled_where_there_is_no_limit(cluster: Cluster) -> None:
    start_pod(cluster, "free", "sleep", "infinity")
    with pytest.raises(ClusterBroken, match="default/free has no memory limit"):
        memory.exceed_memory_limit(cluster, "free")


def test_an_evicted_pod_is_told_so_before_it_ends(cluster: Cluster) -> None:
    start_pod(cluster, "victim", "sleep", "infinity", terminationGracePeriodSeconds=3)
    pods.evict(cluster, "victim")
    assert condition(cluster, "victim", "DisruptionTarget")["reason"] == "EvictionByEvictionAPI"
    assert "deletionTimestamp" in pod(cluster, "victim")["metadata"]


def test_a_pod_gives_way_to_one_of_higher_priority(cluster: Cluster, node: str) -> None:
    start_pod(cluster, "victim", "sleep", "infinity", node=node, limits={GPU: "8"})
    (winner,) = pods.preempt(cluster, gpus=8, node=node)
    eventually(lambda: condition(cluster, "victim", "DisruptionTarget"))
    assert condition(cluster, "victim", "DisruptionTarget")["reason"] == "PreemptionByScheduler"
    eventually(lambda: pod(cluster, winner)["status"]["phase"] == "Running", timeout=30)
    pods.relieve(cluster)
    assert winner not in cluster.kubectl("get", "pods")


def _stands_still(cluster: Cluster) -> bool:
    states = cluster.node(pod(cluster, "counter")["spec"]["nodeName"]).run(
        "bash",
        "-c",
        "for p in $(pgrep -f '[r]ange.10..6'); do sed -n 's/^State:\\s*//p' /proc/$p/status; done",
    )
    return "T (stopped)" in states
