"""A small cluster that these tests may break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cluster_session import folder_cluster, pytest_runtest_protocol

__all__ = ["pytest_runtest_protocol"]

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.cluster import Cluster


@pytest.fixture(scope="session")
def _running(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    with folder_cluster(pytestconfig, "test-itself", list) as found:
        yield found


@pytest.fixture
def cluster(_running: Cluster) -> Iterator[Cluster]:
    """Three nodes and the Python image; the pods of a test go with it."""
    yield _running
    everything = ("--all", "--grace-period=0", "--force", "--wait", "--timeout=60s")
    _running.kubectl("delete", "pods,services", "-l", "test=yes", *everything[1:])


@pytest.fixture
def node(cluster: Cluster) -> str:
    """The name of the node that a test breaks."""
    return cluster.nodes[1].name


@pytest.fixture
def sound_node(cluster: Cluster) -> str:
    """The name of another one, which stays as it is."""
    return cluster.nodes[0].name
