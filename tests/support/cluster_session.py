"""A cluster for the length of a test session, and what is said where there can be none."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import pytest

from testbed.cluster import Cluster
from testbed.errors import ClusterUnavailable
from testbed.places import clusters, locked

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

NO_CLUSTER = "NO CLUSTER: "
RUNNING = pytest.StashKey[contextlib.ExitStack]()
"""Ends the cluster of the folder whose tests run."""


@contextlib.contextmanager
def session_cluster(
    name: str, images: Callable[[], Sequence[Path]], *, keep: bool
) -> Iterator[Cluster]:
    """Start a cluster from scratch and end it after the block; skip where that is not possible.

    With `keep` one that runs is used as it is, and left running. Another session that wants the
    same cluster waits for this one.
    """
    with locked(clusters() / f".{name}.session", waiting_for=f"tests on cluster {name}"):
        cluster = Cluster(name)
        try:
            if not keep:
                cluster.down()
            cluster.up(images())
        except ClusterUnavailable as error:
            pytest.skip(f"{NO_CLUSTER}{error}")
        try:
            yield cluster
        finally:
            if not keep:
                cluster.down()


@contextlib.contextmanager
def folder_cluster(
    config: pytest.Config, name: str, images: Callable[[], Sequence[Path]]
) -> Iterator[Cluster]:
    """The same, ended before the next folder where the conftest has `pytest_runtest_protocol`."""
    with contextlib.ExitStack() as ends:
        config.stash[RUNNING] = ends
        keep = config.getoption("--keep-cluster") or "TRAINRUN_KEEP_CLUSTER" in os.environ
        yield ends.enter_context(session_cluster(name, images, keep=bool(keep)))


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
