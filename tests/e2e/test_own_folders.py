"""Scripts that nobody changes, in a cluster: what they save into their own folders is carried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.faults import nodes
from tests.e2e.support.spreading import on_different_nodes

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.installation import Installation

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.rare("tests/agent/folder/test_gang.py"),
    pytest.mark.usefixtures("mended"),
]

FOLDER = {
    "path": "/tmp/out",
    "newest": "step-*",
    "settle": "1s",
    "resumeArgs": ["--resume", "{newest}"],
}


def test_saves_of_rank_0_alone_outlive_its_node(bed: Bed, installation: Installation) -> None:
    run = bed.run(
        script="own_folder.py",
        replicas=2,
        gpus=0,
        pod=on_different_nodes("run"),
        checkpoint={"folder": FOLDER},
        progress={"output": "Auto"},
        health={"heartbeatTimeout": "10s"},
    )
    run.wait_for_checkpoint(40, seconds=180)
    node = run.pod(0)["spec"]["nodeName"]
    installation.lead_elsewhere(node)
    newest = run.newest_step()
    assert newest is not None
    nodes.power_off(bed.cluster, node)
    status = run.wait_for_attempt(2, seconds=180)
    resumed = status["internal"]["startRecord"]["resumePoint"]["step"]
    assert resumed >= newest
    run.wait_for_checkpoint(resumed + 1, seconds=180)
    for slot in (0, 1):
        assert f"begins after step {resumed}\n" in run.log(run.pod(slot)["metadata"]["name"])
