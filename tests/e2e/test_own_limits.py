"""What a pod does to itself on a real node: a probe fails, a limit is exceeded, somebody kills 1.

Each ends with a SIGTERM of which nobody says at first who sent it, as a preemption does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.support.bed import PYTHON_IMAGE, a_bed
from tests.e2e.support.cluster_run import ClusterRun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.e2e.support.bed import Bed
    from tests.e2e.support.installation import Installation

pytestmark = pytest.mark.cluster


def running(script: str, **container: Any) -> dict[str, Any]:
    """A container whose training does that, and then nothing for ever."""
    command = ["python3", "-c", f"import os, time; time.sleep(4); {script}; time.sleep(600)"]
    return {"command": command, **container}


SICKENS = "open('/full/sick', 'w')"
SICK = {"exec": {"command": ["test", "!", "-e", "/full/sick"]}, "periodSeconds": 1}
WRITES = "open('/full/x', 'wb').write(bytes(8 << 20))"
FULL = {"name": "full", "emptyDir": {"sizeLimit": "1Mi"}}
MOUNT = [{"name": "full", "mountPath": "/full"}]

SLOW = {"name": "slow", "image": PYTHON_IMAGE, "command": ["sleep", "60"]}

DONE: dict[str, tuple[dict[str, Any], str, str]] = {
    "probe": (
        {
            "container": running(SICKENS, livenessProbe=SICK, volumeMounts=MOUNT),
            "pod": {"volumes": [FULL]},
        },
        "Terminated",
        "its livenessProbe",
    ),
    "deadline": (
        {"container": running("0"), "pod": {"activeDeadlineSeconds": 30}},
        "Terminated",
        "reached activeDeadlineSeconds of its pod template: Pod was active on the node longer",
    ),
    "disk": (
        {
            "container": running(WRITES, volumeMounts=MOUNT),
            "pod": {"volumes": [FULL]},
        },
        "Terminated",
        'Usage of EmptyDir volume "full" exceeds the limit "1Mi"',
    ),
    "kill-1": ({"container": running("os.kill(1, 15)")}, "Terminated", "a process in it sent"),
    "no-time": (
        {"container": running("0"), "pod": {"activeDeadlineSeconds": 3, "initContainers": [SLOW]}},
        "StartFailed",
        "reached activeDeadlineSeconds of its pod template",
    ),
}


@pytest.fixture(scope="module")
def bed(installation: Installation) -> Iterator[Bed]:
    """A run of each kind, by name, all at once."""
    policy = {"failurePolicy": {"maxFailures": 0, "maxPreemptions": -1}}
    with a_bed(installation.cluster, "own-limits") as bed:
        bed.apply(
            *(
                bed.trainrun(name, replicas=1, gpus=0, **policy | mistake)
                for name, (mistake, _, _) in DONE.items()
            )
        )
        yield bed


@pytest.mark.parametrize("name", DONE)
def test_what_a_pod_does_to_itself_is_no_preemption(bed: Bed, name: str) -> None:
    _, cause, words = DONE[name]
    run = ClusterRun(bed, name)
    status = run.wait_for_phase("Failed", seconds=120)
    assert status["reason"] == "MaxFailuresExceeded", run.story()
    (incident,) = status["incidents"]
    assert (incident["cause"], incident["budget"]) == (cause, "failures")
    assert words in incident["message"]
