"""checkpoint.buddy on a cluster: a node dies, and its part of the newest checkpoint does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.faults import nodes
from tests.e2e.support.incidents import succeeded
from tests.e2e.support.spreading import on_different_nodes

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.cluster_run import ClusterRun
    from tests.e2e.support.installation import Installation

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.rare("tests/agent/checkpoints/test_buddy.py"),
    pytest.mark.usefixtures("mended"),
]

SAVED = 20
"""Steps on all disks before the node dies; every tenth of a second one, every fifth is saved."""


@pytest.mark.case(
    "nodes", "A node is lost between two uploads (checkpoint.buddy)", counted="maxPreemptions"
)
def test_a_lost_node_costs_the_steps_since_the_newest_copy_and_not_since_the_upload(
    bed: Bed, installation: Installation
) -> None:
    run: ClusterRun = bed.run(
        replicas=2,
        gpus=0,
        args=["--together", "--steps", 600],
        pod=on_different_nodes("run"),
        failurePolicy={"maxFailures": 3, "maxPreemptions": 3, "backoff": {"initial": "0s"}},
        checkpoint={"uploadEvery": "1h", "buddy": True},
        health={"heartbeatTimeout": "10s"},
    )
    status = run.wait(
        f"step {SAVED} to be staged",
        lambda s: s.get("progress", {}).get("staged", -1) >= SAVED,
        seconds=180,
    )
    assert run.newest_step() is None, "nothing is uploaded yet"
    assert "NoBuddy" not in {c["type"] for c in status["conditions"]}
    node = str(run.pod(1)["spec"]["nodeName"])
    installation.lead_elsewhere(node)
    nodes.power_off(bed.cluster, node)
    status = run.wait("attempt 2 to run", lambda s: s["attempt"] == 2, seconds=180)
    point = status["internal"]["startRecord"]["resumePoint"]
    assert point["attempt"] == 1
    assert point["step"] >= SAVED - 10, run.story()
    assert run.causes == ["NodeLost"]
    succeeded(run, seconds=300)
