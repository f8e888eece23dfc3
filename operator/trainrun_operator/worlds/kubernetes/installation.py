"""What a cluster has of TrainRun, and what its user may do there, for the command line.

Layer: worlds/kubernetes. Reads only, with the credentials of the user's kubeconfig. What this user
may not read is None and no error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainrun_operator.api.base import GROUP, VERSION
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.connection import usual_namespace
from trainrun_operator.kube.errors import Forbidden, NotFound
from trainrun_operator.kube.lease import DURATION
from trainrun_operator.worlds.kubernetes.access_reviews import TIMEOUT, Right, missing_rights

LEASE_NAME = "trainrun-operator"
"""Of the operators of a namespace: its holder leads."""
OURS = "app.kubernetes.io/part-of=trainrun"
"""Label of all objects that the chart makes."""
OPERATORS = f"{OURS},app.kubernetes.io/component=operator"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
LOOK_EVERY = 0.5
"""Seconds between two looks at a Lease."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterReadiness:
    """What `trainrun doctor` tells of a cluster."""

    versions: ClusterVersions
    namespace: str
    """Where the rights are asked for."""
    kinds: frozenset[str]
    """Plural names of the resources that are served in our version."""
    leaders: Mapping[str, str | None]
    """Who leads, by the operators' namespaces: empty: nobody; None: not readable."""
    denied: Mapping[str, tuple[str, ...]]
    """What the user may not do, by plural name."""
    policies: tuple[str, ...] | None
    """Names of our admission policies."""
    kueue: bool
    """Kueue is there."""
    roles: tuple[str, ...] | None
    """Names of our ClusterRoles."""


def read_versions() -> ClusterVersions:
    """What the cluster of the kubeconfig has. Raises NoCluster and KubeError."""

    async def connected() -> ClusterVersions:
        async with KubeApi.connected() as api:
            return await _versions(api)

    return asyncio.run(connected())


def read_readiness(
    namespace: str | None, *, verbs: Sequence[str], plurals: Sequence[str]
) -> ClusterReadiness:
    """What the cluster of the kubeconfig has, and which of the verbs on our resources its user may
    not use; namespace None: the kubeconfig's. Raises NoCluster and KubeError."""

    async def connected() -> ClusterReadiness:
        where = namespace or usual_namespace()
        async with KubeApi.connected() as api:
            versions = await _versions(api)
            led = {it.namespace for it in versions.operators or () if it.ready}
            found = await _unless_missing(api, f"/apis/{GROUP}/{VERSION}")
            return ClusterReadiness(
                versions=versions,
                namespace=where,
                kinds=frozenset(str(it["name"]) for it in (found or {}).get("resources", ())),
                leaders={name: await _leader(api, name) for name in sorted(led)},
                denied={
                    name: tuple(
                        right.verb
                        for right in await missing_rights(api, where, _rights(name, verbs))
                    )
                    for name in plurals
                },
                policies=_names(await _ours(api, POLICIES)),
                kueue=await _unless_missing(api, "/apis/kueue.x-k8s.io") is not None,
                roles=_names(await _ours(api, ROLES)),
            )

    return asyncio.run(connected())


async def _versions(api: KubeApi) -> ClusterVersions:
    version = await api.get("/version", timeout=TIMEOUT)
    group = await _unless_missing(api, f"/apis/{GROUP}")
    found = await _ours(api, "/apis/apps/v1/deployments", OPERATORS)
    operators = None if found is None else tuple(map(_operator, found))
    return ClusterVersions(
        kubernetes=str(version.get("gitVersion", "")),
        served=tuple(str(it["version"]) for it in (group or {}).get("versions", ())),
        operators=operators,
    )


async def _ours(api: KubeApi, path: str, labels: str = OURS) -> list[Object] | None:
    """The objects of ours in this list; None: this user may not list them."""
    try:
        found = await api.get(path, params={"labelSelector": labels}, timeout=TIMEOUT)
    except Forbidden:
        return None
    return list(found.get("items") or ())


async def _leader(api: KubeApi, namespace: str) -> str | None:
    """Holder of the operators' Lease; empty: nobody holds it, or its holder no longer renews it;
    None: this user may not read it.

    No clock is compared: a holder that lives changes the Lease while we look.
    """
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE_NAME}"
    first: Object | None = None
    for _ in range(int(DURATION / LOOK_EVERY)):
        try:
            spec = (await api.get(path, timeout=TIMEOUT)).get("spec") or {}
        except Forbidden:
            return None
        except NotFound:
            return ""
        if not spec.get("holderIdentity"):
            return ""
        if first is not None and spec != first:
            return str(spec["holderIdentity"])
        first = spec
        await asyncio.sleep(LOOK_EVERY)
    return ""


def _rights(plural: str, verbs: Sequence[str]) -> list[Right]:
    return [Right(verb=verb, group=GROUP, resource=plural) for verb in verbs]


def _names(objects: list[Object] | None) -> tuple[str, ...] | None:
    return None if objects is None else tuple(str(it["metadata"]["name"]) for it in objects)


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
