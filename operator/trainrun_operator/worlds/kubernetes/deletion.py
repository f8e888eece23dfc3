"""The deletion of one pod of ours; what the API server answers to it is known at once.

Layer: worlds/kubernetes. Invariants: a pod is deleted by its uid; one that is still there is not
forgotten: it would not be seen any more, and another one would be made beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import Conflict, NotFound
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact


async def delete_pod(
    pod: PodFact, *, api: KubeApi, pods: PodIndex, guard: Callable[[], None], force: bool = False
) -> None:
    """`force`: at once, without a word of its node; `guard` as for the API. Raises KubeError where
    it stays."""
    body: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if force:
        body["gracePeriodSeconds"] = 0
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    try:
        raw = await api.delete(path, body=body, guard=guard)
    except (NotFound, Conflict) as error:
        if isinstance(error, Conflict) and "Precondition failed" not in error.message:
            raise  # it is there: a policy or a webhook has refused
        pods.forget(pod)
        return
    if raw.get("kind") == "Pod" and not force:
        pods.learn(raw)
    else:
        pods.forget(pod)
