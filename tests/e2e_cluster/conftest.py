"""A small cluster that these tests may break."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.support.cluster_session import session_cluster

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from testbed.cluster import Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "e2e_cluster" in item.path.parts:
            item.add_marker("cluster")


RUNNING = pytest.StashKey[contextlib.ExitStack]()
"""Ends the cluster."""


@pytest.fixture(scope="session")
def _running(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    keep = bool(pytestconfig.getoption("--keep-cluster"))
    with contextlib.ExitStack() as ends:
        pytestconfig.stash[RUNNING] = ends
        yield ends.enter_context(session_cluster("test-itself", list, keep=keep))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """End the cluster with the last test of this folder: idle it costs a tenth of a core.

    Not in the teardown of that test: it may have a second try.
    """
    done = yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        item.config.stash.get(RUNNING, contextlib.ExitStack()).close()
    return done


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
