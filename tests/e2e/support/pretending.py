"""Pods that somebody else makes to look like a worker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def copied(worker: Json, *, name: str, command: Sequence[str], owned: bool = True) -> Json:
    """What an editor makes of `kubectl get -o yaml` to try a command in a worker's surroundings.

    In another namespace it cannot be `owned`: the cluster would delete it at once.
    """
    metadata, spec = worker["metadata"], worker["spec"]
    container = {**spec["containers"][0], "command": list(command), "resources": {}}
    kept = ("labels", "annotations", *(("ownerReferences",) if owned else ()))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **{key: metadata[key] for key in kept}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{**container, "volumeMounts": []}],
        },
    }
