"""One cluster with the operator for the session, a namespace for each test.

TRAINRUN_CLUSTER names the cluster (default `test`); with TRAINRUN_KEEP_CLUSTER=1 it is left
running, which makes the next session start in seconds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterUnavailable
from tests.cluster.project_images import IMAGES, OPERATOR, build
from tests.e2e.support.bed import Bed, a_bed
from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.installation import Installation
from tests.e2e.support.mending import mend

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

_WHY_NOT = pytest.StashKey[str]()
_LEFT_OUT = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def images(pytestconfig: pytest.Config) -> dict[str, Path]:
    """Archives of the project's images, as the checkout is now; skips where they can't be made."""
    try:
        return {image.short: build(image) for image in IMAGES}
    except ClusterUnavailable as error:
        pytestconfig.stash[_WHY_NOT] = str(error)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cluster(images: dict[str, Path], pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A running cluster with the project's images on each node; skips where there can be none."""
    found = Cluster(os.environ.get("TRAINRUN_CLUSTER", "test"))
    try:
        found.up(images=list(images.values()))
    except ClusterUnavailable as error:
        pytestconfig.stash[_WHY_NOT] = str(error)
        pytest.skip(str(error))
    try:
        yield found
    finally:
        if "TRAINRUN_KEEP_CLUSTER" not in os.environ:
            found.down()


@pytest.fixture(scope="session")
def installation(cluster: Cluster, images: dict[str, Path]) -> Installation:
    """The operator, installed by its chart; two replicas, one of which leads."""
    installed = Installation(cluster)
    # A cluster that was kept may hold an older image of the same name.
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the runs of a failed test went through; remember what was left out."""
    report = yield
    if report.failed and call.when == "call":
        for found in getattr(item, "funcargs", {}).values():
            bed = found.bed if isinstance(found, ClusterRun) else found
            if isinstance(bed, Bed):
                report.sections.append((f"runs in {bed.namespace}", bed.story()))
    if report.skipped and _WHY_NOT in item.config.stash:
        item.config.stash.setdefault(_LEFT_OUT, []).append(item.nodeid)
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say loudly which tests did not run for want of a cluster."""
    if left_out := config.stash.get(_LEFT_OUT, []):
        terminalreporter.section("tests that need a cluster did NOT run", red=True, bold=True)
        terminalreporter.write_line(f"{len(left_out)} tests in tests/e2e: {config.stash[_WHY_NOT]}")
