"""The TrainRun of one run of a drill in a cluster: the user's, with all that is its own replaced.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trainrun_operator.api.run.spec import MAX_NAME
from trainrun_operator.cli.drilling.ground import offline, survives
from trainrun_operator.worlds.local.program import training_container

if TYPE_CHECKING:
    from trainrun_operator.api.resources import TrainRun

LABEL = "trainrun.dev/drill"
"""Of the runs of a drill: the name of the run that is rehearsed."""
OFFLINE = offline("file:///tmp/mlruns")
"""Trackers write within the pod."""
LEFT_BEHIND = 120.0
"""Seconds after its time when the operator ends a run whose drill was killed and could not."""
KEPT = "168h"
"""For so long after that the run says that its folder is a drill's, which the next one removes."""


def drill_name(run: TrainRun, number: int, token: str) -> str:
    """Of its n-th run: nobody else's, and not longer than a name may be."""
    end = f"-drill-{token}-{number}"
    return run.metadata.name[: MAX_NAME - len(end)].rstrip("-") + end


def drill_document(
    run: TrainRun, *, name: str, namespace: str, faults: int, seconds: float
) -> dict[str, Any]:
    """To be created under this name, with storage of the same name beside the run's own. It may
    take so many seconds."""
    document = run.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec = document["spec"]
    spec["storage"] |= {"runName": name, "onExisting": "Fail"}
    spec["failurePolicy"] = survives(faults)
    spec["activeDeadline"] = f"{math.ceil(seconds + LEFT_BEHIND)}s"
    spec["ttlAfterFinished"] = KEPT
    spec["retainFailedWorkers"] = 0
    spec.pop("suspend", None)
    _take_offline(spec["workers"]["template"]["spec"])
    kept = run.metadata
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {**kept.labels, LABEL: kept.name},
        "annotations": {k: v for k, v in kept.annotations.items() if "kubectl" not in k},
    }
    return {**run_head(run), "metadata": metadata, "spec": spec}


def run_head(run: TrainRun) -> dict[str, str]:
    """apiVersion and kind."""
    return {"apiVersion": run.api_version, "kind": run.kind}


def _take_offline(pod: dict[str, Any]) -> None:
    _, container = training_container(pod["containers"])
    own = [entry for entry in container.get("env", ()) if entry["name"] not in OFFLINE]
    added = [{"name": name, "value": value} for name, value in OFFLINE.items()]
    pod["containers"] = [
        {**each, "env": [*own, *added]} if each is container else each for each in pod["containers"]
    ]
