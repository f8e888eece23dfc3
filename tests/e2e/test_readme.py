"""The README's commands for a cluster, run as they are printed."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.docs.documents import ROOT, commands_below
from tests.e2e.support.installation import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.cluster import Cluster
    from tests.e2e.support.installation import Installation

pytestmark = pytest.mark.cluster


@pytest.fixture
def newcomers_cluster(installation: Installation) -> Iterator[Cluster]:
    """The session's cluster without the operator; it is brought back in the end."""
    cluster = installation.cluster
    with installation.taking_rights():
        installation.uninstall()
    try:
        yield cluster
    finally:
        for left in ("trainrun/first", "configmap/first"):
            cluster.kubectl("delete", left, "--ignore-not-found")
        with installation.taking_rights():
            installation.install()
        installation.make_whole()


def test_the_commands_of_the_readme_install_the_operator_and_train(
    newcomers_cluster: Cluster,
) -> None:
    lines = commands_below(ROOT / "README.md", "## On a cluster")
    assert lines[0].startswith("make cluster-up")
    assert any(line.startswith(f"helm install trainrun charts/trainrun --namespace {NAMESPACE} ")
               for line in lines)  # fmt: skip

    ended = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "\n".join(lines)],
        cwd=ROOT,
        env=newcomers_cluster.environment(),
        capture_output=True,
        text=True,
        timeout=540,
    )

    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert "trainrun.trainrun.dev/first condition met" in ended.stdout
    assert "all 4 processes ended with exit code 0" in ended.stdout
