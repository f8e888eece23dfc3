"""What a cluster has of TrainRun, for the command line.

Layer: worlds/kubernetes. Reads only, with the credentials of the user's kubeconfig. What this user
may not read is None and no error.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from trainrun_operator.api.base import GROUP
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.errors import Forbidden, NotFound

OURS = {"labelSelector": "app.kubernetes.io/part-of=trainrun"}
"""Labels of all objects that the chart makes."""
TIMEOUT = 10.0
"""Seconds for each question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFound:
    """A Deployment of the chart."""

    namespace: str
    name: str
    version: str
    """Of the chart that installed it; empty: no label says so."""
    ready: int
    """Pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterVersions:
    """What `trainrun version` tells of a cluster."""

    kubernetes: str
    """Version of the API server."""
    served: tuple[str, ...]
    """Versions of the resources that it serves; empty: no CRD is there."""
    operators: tuple[OperatorFound, ...] | None


def read_installation() -> ClusterVersions:
    """What the cluster of the kubeconfig has. Raises NoCluster and KubeError."""
    return asyncio.run(_connected())


async def _connected() -> ClusterVersions:
    async with KubeApi.connected() as api:
        return await installation(api)


async def installation(api: KubeApi) -> ClusterVersions:
    """See `read_installation`."""
    version = await api.get("/version", timeout=TIMEOUT)
    group = await _unless_missing(api, f"/apis/{GROUP}")
    found = await _ours(api, "/apis/apps/v1/deployments")
    operators = None if found is None else tuple(map(_operator, found))
    return ClusterVersions(
        kubernetes=str(version.get("gitVersion", "")),
        served=tuple(str(it["version"]) for it in (group or {}).get("versions", ())),
        operators=operators,
    )


async def _ours(api: KubeApi, path: str) -> list[Object] | None:
    """The objects of ours in this list; None: this user may not list them."""
    try:
        found = await api.get(path, params=OURS, timeout=TIMEOUT)
    except Forbidden:
        return None
    return list(found.get("items") or ())


def _operator(deployment: Object) -> OperatorFound:
    metadata, status = deployment["metadata"], deployment.get("status") or {}
    labels = metadata.get("labels") or {}
    return OperatorFound(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        version=str(labels.get("app.kubernetes.io/version", "")),
        ready=int(status.get("readyReplicas") or 0),
    )


async def _unless_missing(api: KubeApi, path: str) -> Object | None:
    try:
        return await api.get(path, timeout=TIMEOUT)
    except NotFound:
        return None
