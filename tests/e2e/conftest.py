"""One cluster with the operator for the session, a namespace for each test.

TRAINRUN_CLUSTER names the cluster (default `test`); with TRAINRUN_KEEP_CLUSTER=1 or --keep-cluster
one that runs is used and left running, which makes the next session start in seconds. Of several
processes (`pytest -n`) each that runs tests of this folder has its own: `test-gw0`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from testbed.cluster import NAME_VARIABLE
from testbed.errors import ClusterUnavailable
from testbed.images import base_image
from testbed.project_images import IMAGES, OPERATOR, build
from tests.e2e.support.bed import Bed, a_bed
from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.installation import Installation
from tests.e2e.support.mending import mend
from tests.support.cluster_session import (
    NO_CLUSTER,
    folder_cluster,
    pytest_runtest_protocol,
)

__all__ = ["pytest_runtest_protocol"]

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from testbed.cluster import Cluster


@pytest.fixture(scope="session")
def images() -> dict[str, Path]:
    """Archives of the project's images, as the checkout is now; skips where they can't be made."""
    try:
        return {image.short: build(image) for image in IMAGES}
    except ClusterUnavailable as error:
        pytest.skip(f"{NO_CLUSTER}{error}")


@pytest.fixture(scope="session")
def cluster(images: dict[str, Path], pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A running cluster with the project's images on each node; skips where there can be none."""
    process = os.environ.get("PYTEST_XDIST_WORKER")
    name = os.environ.get(NAME_VARIABLE, "test") + (f"-{process}" if process else "")
    # Loaded here, an image is unpacked once for all nodes and all sessions.
    with folder_cluster(
        pytestconfig, name, lambda: [*images.values(), base_image("torch")]
    ) as found:
        yield found


@pytest.fixture(scope="session")
def installation(cluster: Cluster, images: dict[str, Path]) -> Installation:
    """The operator, installed by its chart; two replicas, one of which leads."""
    installed = Installation(cluster)
    # A cluster that was kept may have held an older image of the same name.
    installed.install("--set", f"podAnnotations.image={images[OPERATOR.short].stem}")
    installed.wait_for_leader()
    return installed


@pytest.fixture
def bed(installation: Installation, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """A fresh namespace; it is removed in the end."""
    with a_bed(installation.cluster, request.node.name) as made:
        yield made


@pytest.fixture
def mended(cluster: Cluster) -> Iterator[None]:
    """Brings every node back in the end, whatever was done to it."""
    yield
    mend(cluster)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put those to the end that judge the whole session."""
    items.sort(key=lambda item: item.get_closest_marker("after_all_others") is not None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the runs of a failed test went through."""
    report = yield
    if report.failed and call.when == "call":
        for found in getattr(item, "funcargs", {}).values():
            bed = found.bed if isinstance(found, ClusterRun) else found
            if isinstance(bed, Bed):
                report.sections.append((f"runs in {bed.namespace}", bed.story()))
    return report
