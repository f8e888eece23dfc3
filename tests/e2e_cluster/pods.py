"""Small pods to try a cluster with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from testbed.images import base_name
from tests.support.eventually import eventually

if TYPE_CHECKING:
    from testbed.cluster import Cluster

SERVE = ("python", "-m", "http.server", "8080")


def start_pod(
    cluster: Cluster,
    name: str,
    *command: str,
    node: str | None = None,
    limits: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    wait: bool = True,
    **spec: Any,
) -> None:
    """Start a pod with the Python image; return once it runs, unless told not to wait."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"test": "yes", **(labels or {})}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "containers": [
                {
                    "name": "main",
                    "image": base_name("python"),
                    "command": list(command),
                    "resources": {"limits": limits or {}},
                }
            ],
            **spec,
        },
    }
    cluster.kubectl("apply", "-f", "-", text=json.dumps(pod))
    if wait:
        cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def pod(cluster: Cluster, name: str) -> dict[str, Any]:
    """The pod as the API server has it."""
    return cluster.api.get(f"/api/v1/namespaces/default/pods/{name}")


def condition(cluster: Cluster, name: str, kind: str) -> dict[str, Any]:
    """A condition of a pod; empty when it has none of that type."""
    conditions = pod(cluster, name)["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


def run_in(cluster: Cluster, name: str, script: str) -> str:
    """Run a Python script in a pod; return what it printed."""
    return cluster.kubectl("exec", name, "--", "python", "-c", script).strip()


def ends(cluster: Cluster, name: str) -> dict[str, Any]:
    """Wait for the end of a pod's container; return its state `terminated`."""

    def terminated() -> dict[str, Any]:
        statuses = pod(cluster, name)["status"].get("containerStatuses", [{}])
        ended: dict[str, Any] = statuses[0].get("state", {}).get("terminated", {})
        return ended

    eventually(terminated, timeout=30, what=f"{name} has ended")
    return terminated()
