"""What people see who use the cluster from a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.faults import servers
from tests.e2e_cluster.pods import start_pod

if TYPE_CHECKING:
    from testbed.cluster import Cluster

ROOT = Path(__file__).parents[2]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "testbed"]
    return subprocess.run([*program, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_status_says_where_everything_is(cluster: Cluster) -> None:
    shown = command("status", "--name", cluster.name)
    assert shown.returncode == 0, shown.stderr
    assert str(cluster.kubeconfig) in shown.stdout
    assert cluster.s3.secret_key in shown.stdout
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert [[node.name, "True", node.ip, "8"] for node in cluster.nodes] == rows[-3:]


def test_status_of_a_cluster_that_does_not_run_says_so() -> None:
    shown = command("status", "--name", "never-started")
    assert shown.returncode == 1
    assert shown.stdout == "cluster never-started is not running; `up` starts it\n"


def test_a_fault_names_the_processes_that_it_has_hit(cluster: Cluster) -> None:
    start_pod(cluster, "worker", "sleep", "infinity")
    shown = command("fault", "kill", "worker", "--name", cluster.name)
    assert shown.stdout.startswith("SIGKILL ")
    assert "sleep infinity" in shown.stdout


def test_a_fault_in_something_unknown_is_one_line(cluster: Cluster) -> None:
    pod = command("fault", "kill", "nobody", "--name", cluster.name)
    assert (pod.returncode, pod.stderr) == (1, 'error: 404: pods "nobody" not found\n')
    node = command("fault", "crash", "n9", "--name", cluster.name)
    known = ", ".join(each.name for each in cluster.nodes)
    assert node.stderr == f"error: there is no node 'n9'; there are {known}\n"
    missing = command("fault", "crash", "n1", "--name", "never-started")
    assert "error: there is no cluster 'never-started'" in missing.stderr


def test_a_fault_while_the_api_server_is_away_says_that_it_is(cluster: Cluster) -> None:
    servers.stop_api_server(cluster)
    shown = command("fault", "evict", "somebody", "--name", cluster.name)
    servers.start_api_server(cluster)
    assert shown.returncode == 1
    assert "error: the API server does not answer: [Errno 111] Connection refused" in shown.stderr
