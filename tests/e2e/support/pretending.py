"""Pods that somebody else makes to look like a worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.support.cluster_run import Json


def pretended_worker(worker: Json, *, name: str) -> Json:
    """A copy of a worker's pod under another name, with its labels, seal and owner.

    Its agent gives itself out as the worker of that name.
    """
    metadata = worker["metadata"]
    slot, creation = name.rsplit("-", 2)[1:]
    labels = {
        **metadata["labels"],
        "trainrun.dev/slot": slot,
        "trainrun.dev/creation": creation,
    }
    spec = json.loads(json.dumps(worker["spec"]).replace(metadata["name"], name))
    for given_by_the_cluster in ("nodeName", "tolerations"):
        spec.pop(given_by_the_cluster, None)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": metadata["annotations"],
            "ownerReferences": metadata["ownerReferences"],
        },
        "spec": spec,
    }
