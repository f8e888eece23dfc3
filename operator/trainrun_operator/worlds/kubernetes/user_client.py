"""Reads and changes a user's TrainRuns and TrainSweeps by name, for the command line.

Layer: worlds/kubernetes. Uses only the credentials of the user's kubeconfig. Errors of the cluster
come with a remedy. Invariant: a write is decided from the version that it replaces, so two
concurrent users do not undo each other's changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.api.resources import TRAINRUN, Resource
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.connection import usual_namespace
from trainrun_operator.kube.errors import (
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from trainrun_operator.worlds.kubernetes.run_object import RunVersion, run_version
from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion, sweep_version

UserVerb = Literal["get", "patch"]
"""Verbs of the command line's calls."""

_ROLES: dict[UserVerb, str] = {"get": "view", "patch": "edit"}
"""The smallest default role of every cluster that the chart extends with this verb."""
TRIES = 10
"""The operator sometimes writes the status between our read and write; users rarely do."""
MANAGER = "trainrun"
"""The field manager of our changes, in metadata.managedFields."""

Decide = Callable[[SweepVersion], Mapping[str, object]]
"""From a version to fields below `spec` with their new values; empty: write nothing."""


class NoSuchObject(TrainRunError):
    """No object of this name and kind exists."""


class ClusterRefused(TrainRunError):
    """The cluster refused the user's call."""


def user_error(
    error: KubeError, verb: UserVerb, resource: Resource[Any], namespace: str, name: str
) -> TrainRunError:
    """The error in words for a user, with a remedy."""
    plural = resource.name
    match error:
        case NotFound(reason="NotFound"):
            return NoSuchObject(
                f"there is no {resource.kind} {name} in namespace {namespace}; `kubectl get "
                f"{resource.plural} -A` lists all, -n or NAMESPACE/NAME names another namespace"
            )
        case NotFound():  # the path itself: no such kind
            return NoSuchObject(
                f"this cluster has no CRD for {resource.kind} ({error}); install the operator's "
                "chart there, or choose another cluster with KUBECONFIG"
            )
        case Forbidden() if " cannot " in str(error):  # a missing permission, not a quota or rule
            return ClusterRefused(
                f"{error}; ask the cluster's administrator for the role {_ROLES[verb]} in "
                f"namespace {namespace} (`kubectl auth can-i {verb} {plural} -n {namespace}`)"
            )
        case Unauthorized():
            return ClusterRefused(
                f"the cluster does not accept the credentials of your kubeconfig ({error}); log in "
                f"again, until `kubectl get {plural} -n {namespace}` works"
            )
        case Unavailable():
            return ClusterRefused(
                f"the cluster of your kubeconfig does not answer ({error}); check whether "
                "`kubectl cluster-info` reaches it, or choose another one with KUBECONFIG"
            )
        case _:
            return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Namesakes:
    """The TrainRun and the TrainSweep of one name: at least one of them exists."""

    run: RunVersion | None
    sweep: SweepVersion | None
    """None also if it cannot be read while the run exists."""


def read_namesakes(name: str, namespace: str | None) -> Namesakes:
    """The objects of this name; namespace None: the kubeconfig's.

    Raises NoCluster, NoSuchObject, ClusterRefused, KubeError, and InvalidSpec.
    """
    return asyncio.run(_namesakes(name, namespace or usual_namespace()))


def read_one_sweep(name: str, namespace: str | None) -> SweepVersion:
    """The TrainSweep of this name. Raises as `read_namesakes`."""
    return asyncio.run(_one_sweep(name, namespace or usual_namespace()))


async def _namesakes(name: str, namespace: str) -> Namesakes:
    async with KubeApi.connected() as api:
        run, sweep = await asyncio.gather(
            _answer(api, TRAINRUN, namespace, name), _answer(api, TRAINSWEEP, namespace, name)
        )
    if isinstance(run, dict):
        return Namesakes(run=run_version(run), sweep=_if_readable(sweep))
    if isinstance(sweep, dict):
        return Namesakes(run=None, sweep=sweep_version(sweep))
    if isinstance(run, NoSuchObject) and isinstance(sweep, NoSuchObject):
        raise NoSuchObject(str(run).replace("no TrainRun", "neither a TrainRun nor a TrainSweep"))
    raise sweep if isinstance(run, NoSuchObject) else run


async def _one_sweep(name: str, namespace: str) -> SweepVersion:
    async with KubeApi.connected() as api:
        return await _sweep(api, namespace, name)


async def _sweep(api: KubeApi, namespace: str, name: str) -> SweepVersion:
    found = await _answer(api, TRAINSWEEP, namespace, name)
    if isinstance(found, TrainRunError):
        raise found
    return sweep_version(found)


async def _answer(
    api: KubeApi, resource: Resource[Any], namespace: str, name: str
) -> Object | TrainRunError:
    try:
        return await api.get(resource.path(namespace, name))
    except KubeError as error:
        return user_error(error, "get", resource, namespace, name)


def _if_readable(answer: Object | TrainRunError) -> SweepVersion | None:
    if isinstance(answer, TrainRunError):
        return None
    try:
        return sweep_version(answer)
    except InvalidSpec:
        return None


def change_sweep(name: str, namespace: str | None, decide: Decide) -> None:
    """Read, decide and write; retry if the object changed meanwhile. `decide` may raise.

    Raises NoCluster, NoSuchObject, ClusterRefused, KubeError, and InvalidSpec.
    """
    asyncio.run(_change(name, namespace or usual_namespace(), decide))


async def _change(name: str, namespace: str, decide: Decide) -> None:
    async with KubeApi.connected() as api:
        for _ in range(TRIES):
            version = await _sweep(api, namespace, name)
            fields = decide(version)
            if not fields:
                return
            version.changed(fields)
            try:
                await _written(api, version, fields)
            except Conflict:
                continue
            except KubeError as error:
                raise user_error(error, "patch", TRAINSWEEP, namespace, name) from error
            return
    raise ClusterRefused(
        f"{namespace}/{name} was not changed: it was modified concurrently {TRIES} times. Retry"
    )


async def _written(api: KubeApi, version: SweepVersion, fields: Mapping[str, object]) -> None:
    metadata = version.raw["metadata"]
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": dict(fields)}
    path = TRAINSWEEP.path(metadata["namespace"], metadata["name"])
    await api.patch(path, body, manager=MANAGER)
