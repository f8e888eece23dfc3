"""What takes pods away: evictions, deletions, and pods of a higher priority."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.api import ApiError
from testbed.images import base_name
from testbed.readiness import GPU

if TYPE_CHECKING:
    from testbed.cluster import Cluster

PRIORITY_CLASS = "trainrun-fault"
_LABEL = "trainrun-fault"


def evict(
    cluster: Cluster, pod: str, *, namespace: str = "default", grace_seconds: int | None = None
) -> None:
    """Evict through the API, as a drain and an autoscaler do.

    Raises ApiError 429 when a disruption budget forbids it.
    """
    eviction: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
    }
    if grace_seconds is not None:
        eviction["deleteOptions"] = {"gracePeriodSeconds": grace_seconds}
    cluster.api.post(f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", eviction)


def delete(
    cluster: Cluster, pod: str, *, namespace: str = "default", grace_seconds: int | None = None
) -> None:
    """Delete a pod by hand; with 0 seconds without asking its node. Returns at once."""
    options = None if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
    cluster.api.delete(f"/api/v1/namespaces/{namespace}/pods/{pod}", options)


def preempt(
    cluster: Cluster,
    *,
    gpus: int,
    pods: int = 1,
    node: str | None = None,
    namespace: str = "default",
) -> list[str]:
    """Create pods of a high priority that want `gpus` GPUs each: the scheduler makes room.

    On `node`, if it is named. Returns the names of the pods; `relieve` deletes them.
    """
    _make_priority_class(cluster)
    selector = {"kubernetes.io/hostname": node} if node else {}
    created = [
        cluster.api.post(
            f"/api/v1/namespaces/{namespace}/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"generateName": "important-", "labels": {_LABEL: "preemption"}},
                "spec": {
                    "priorityClassName": PRIORITY_CLASS,
                    "nodeSelector": selector,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [
                        {
                            "name": "sleep",
                            "image": base_name("python"),
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["sleep", "infinity"],
                            "resources": {"limits": {GPU: str(gpus)}},
                        }
                    ],
                },
            },
        )
        for _ in range(pods)
    ]
    return [pod["metadata"]["name"] for pod in created]


def relieve(cluster: Cluster, *, namespace: str = "default") -> None:
    """Delete the pods of `preempt`; return once they are gone."""
    cluster.kubectl("delete", "pods", "-n", namespace, "-l", _LABEL, "--wait", "--timeout=60s")


def _make_priority_class(cluster: Cluster) -> None:
    try:
        cluster.api.post(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {"metadata": {"name": PRIORITY_CLASS}, "value": 1_000_000},
        )
    except ApiError as error:
        if error.status != 409:
            raise
