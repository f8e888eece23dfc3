"""`down` leaves nothing behind, whatever came before it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import cgroups, network
from testbed.addresses import CLUSTERS, Addresses
from testbed.cluster import Cluster
from testbed.embedded import Embedded
from testbed.places import clusters
from tests.e2e_cluster.pods import start_pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.cluster import Cluster as Running


@pytest.fixture
def second(cluster: Running) -> Iterator[Cluster]:
    """A name beside the cluster of the session; embedded ones only."""
    if not isinstance(cluster.provider, Embedded):
        pytest.skip("tests/kind looks for what kind leaves behind")
    other = Cluster("test-second")
    other.down()
    yield other
    other.down()


def processes_of(state: Path) -> list[str]:
    """The command lines of all processes that mention a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(state) in line:
                found.append(line)
    return found


def everything_of(state: Path, addresses: Addresses) -> list[str]:
    """Whatever of a cluster is on this machine, found by other means than the tool's own."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found = processes_of(state) + [line for line in mounts if str(state) in line]
    found += network.left_over(addresses)
    found += map(str, cgroups.left_over(addresses.cgroup))
    return found + ([str(state)] if state.exists() else [])


def test_two_clusters_run_side_by_side_and_one_ends_alone(
    cluster: Running, second: Cluster
) -> None:
    second.up()
    assert isinstance(second.provider, Embedded)
    addresses, state = second.provider.addresses, second.provider.state
    assert isinstance(cluster.provider, Embedded)
    assert addresses.index != cluster.provider.addresses.index
    for each in (cluster, second):
        start_pod(each, "one", "sleep", "infinity")
    assert everything_of(state, addresses)
    second.down()
    assert everything_of(state, addresses) == []
    assert second.left_over() == []
    assert not second.is_running()
    assert "one" in cluster.kubectl("get", "pods")


@pytest.mark.parametrize("seconds", [0.5, 1.5, 3.0, 5.0])
def test_down_leaves_nothing_after_up_was_killed_halfway(second: Cluster, seconds: float) -> None:
    state = clusters() / second.name
    starting = subprocess.Popen(
        [sys.executable, "-m", "testbed", "up", "--name", second.name],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    time.sleep(seconds)
    starting.send_signal(signal.SIGKILL)
    starting.wait()
    second.down()
    assert processes_of(state) == []
    assert second.left_over() == []
    running = Cluster("test-itself").provider
    assert isinstance(running, Embedded)
    others = [i for i in range(CLUSTERS) if i != running.addresses.index and i not in _taken()]
    for index in others:
        assert network.left_over(Addresses(index=index)) == []
        assert cgroups.left_over(Addresses(index=index).cgroup) == []


def test_a_cluster_that_lost_its_processes_starts_anew(second: Cluster) -> None:
    second.up()
    assert isinstance(second.provider, Embedded)
    second.provider.processes.kill_all()
    second.up()
    assert second.is_running()
    start_pod(second, "one", "sleep", "infinity")


def test_down_ends_a_cluster_whose_servers_hang(second: Cluster) -> None:
    second.up()
    second.s3.freeze()
    started = time.monotonic()
    second.down()
    assert time.monotonic() - started < 20
    assert second.left_over() == []


def _taken() -> set[int]:
    """The indexes of clusters of other people on this machine."""
    names = [path.parent.name for path in clusters().glob("*/cluster.json")]
    return {Embedded(name=name, state=clusters() / name).addresses.index for name in names}
