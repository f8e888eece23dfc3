"""The code of a run is changed while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.incidents import succeeded, training
from tests.e2e.support.workers import kill_worker
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from tests.e2e.support.bed import Bed
    from tests.e2e.support.cluster_run import Json

pytestmark = pytest.mark.cluster

MOUNT = {"name": "code", "mountPath": "/scripts/counting.py", "subPath": "counting.py"}


def with_code(bed: Bed, name: str) -> Json:
    """The run with its script from this ConfigMap."""
    options: dict[str, Any] = {"gpus": 0, "health": {"heartbeatTimeout": "10s"}}
    volumes = {"volumes": [{"name": "code", "configMap": {"name": name}}]}
    mounts = {"volumeMounts": [MOUNT]}
    return bed.trainrun(args=["--attempts", 3], container=mounts, pod=volumes, **options)


@pytest.mark.case("nodes", "The script's ConfigMap or image tag changes under a gang")
@pytest.mark.rare("tests/core/run/test_code.py")
def test_a_config_map_that_is_edited_under_a_gang_is_told(bed: Bed) -> None:
    """With subPath the survivors ran the old code for ever beside the new one's."""
    script = bed.json("configmap", "scripts")["data"]["counting.py"]

    def write(name: str, text: str) -> None:
        data = {"counting.py": text}
        metadata = {"name": name}
        bed.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    write("code-1", script)
    bed.apply(with_code(bed, "code-1"))
    run = ClusterRun(bed, "run")
    before = training(run)
    assert run.condition("CodeDiffers") == {}

    write("code-1", f"{script}\n# edited\n")
    kill_worker(run, 1)
    before.one_incident("Unknown")
    new = run.pod(1)["metadata"]["name"]
    assert run.condition("CodeDiffers")["message"] == (
        f"rank 1 (worker {new}) has a different /scripts/counting.py than rank 0 (worker run-0-1): "
        "the ranks of one attempt run different code. Give changed code a new name in "
        "workers.template (of the ConfigMap, of the image), so that all workers are replaced"
    )
    eventually(lambda: run.reasons().count("CodeDiffers") == 1, what="one event of it")

    write("code-2", f"{script}\n# edited\n")
    bed.apply(with_code(bed, "code-2"))
    succeeded(run)
    assert run.condition("CodeDiffers") == {}
