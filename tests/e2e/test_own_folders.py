"""Scripts that nobody changes, in a cluster: what they save into their own folders is carried."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from testbed.faults import nodes, processes, servers
from tests.e2e.support.spreading import on_different_nodes
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.cluster_run import ClusterRun
    from tests.e2e.support.installation import Installation

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("mended")]

FOLDER = {
    "path": "/tmp/out",
    "newest": "step-*",
    "settle": "1s",
    "resumeArgs": ["--resume", "{newest}"],
}


def begin(bed: Bed, *args: str, replicas: int = 1, **options: Any) -> ClusterRun:
    return bed.run(
        script="own_folder.py",
        args=args,
        replicas=replicas,
        gpus=0,
        checkpoint={"folder": FOLDER},
        progress={"output": "Auto"},
        health={"heartbeatTimeout": "10s"},
        **options,
    )


def name_of(run: ClusterRun, slot: int = 0) -> str:
    return str(run.pod(slot)["metadata"]["name"])


def resumed(run: ClusterRun, *, replicas: int = 1) -> int:
    """The step from which every script goes on in attempt 2."""
    status = run.wait_for_attempt(2, seconds=180)
    step = int(status["internal"]["startRecord"]["resumePoint"]["step"])
    begins = f"begins after step {step}\n"

    def all_begin() -> bool:
        return all(begins in run.log(name_of(run, slot)) for slot in range(replicas))

    eventually(all_begin, timeout=60, what=begins)
    return step


@pytest.mark.rare("tests/agent/folder/test_gang.py")
def test_saves_of_rank_0_alone_outlive_its_node(bed: Bed, installation: Installation) -> None:
    run = begin(bed, replicas=2, pod=on_different_nodes("run"))
    run.wait_for_checkpoint(40, seconds=180)
    node = run.pod(0)["spec"]["nodeName"]
    installation.lead_elsewhere(node)
    newest = run.newest_step()
    assert newest is not None
    nodes.power_off(bed.cluster, node)
    step = resumed(run, replicas=2)
    assert step >= newest
    run.wait_for_checkpoint(step + 1, seconds=180)


@pytest.mark.rare("tests/simulation/test_own_folders.py")
def test_saves_made_while_the_store_is_away_outlive_the_script(bed: Bed) -> None:
    run = begin(bed)
    run.wait_for_checkpoint(20, seconds=180)

    def taken() -> int:
        found = re.findall(r"took step-(\d+) as", run.log(name_of(run)))
        return max(map(int, found), default=0)

    servers.stop_s3(bed.cluster)
    try:
        newest = run.newest_step() or 0
        eventually(lambda: taken() > newest + 20, timeout=120, what="two saves are taken")
        last = taken()
        processes.kill(
            bed.cluster, name_of(run), matching="^python3 /scripts/own", namespace=bed.namespace
        )
        run.wait("a wait for the store", lambda s: s["reason"] == "StorageUnavailable", seconds=120)
    finally:
        servers.start_s3(bed.cluster)
    assert resumed(run) >= last > newest


@pytest.mark.rare("tests/simulation/test_own_folders.py")
def test_what_a_suspended_script_saves_on_sigterm_is_resumed(bed: Bed) -> None:
    run = begin(bed, "--on-sigterm")
    run.wait_for_phase("Running", seconds=120)
    eventually(lambda: "iter 20:" in run.log(name_of(run)), timeout=60, what="step 20")
    assert run.newest_step() is None
    run.patch({"suspend": True})
    saved = run.wait_for_phase("Suspended", seconds=120)["checkpoint"]["step"]
    run.patch({"suspend": False})
    assert resumed(run) == saved >= 20
