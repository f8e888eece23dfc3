"""A cluster for the length of a test session, and what is said where there can be none."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from testbed.cluster import Cluster
from testbed.errors import ClusterUnavailable
from testbed.places import clusters, locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

NO_CLUSTER = "NO CLUSTER: "


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
