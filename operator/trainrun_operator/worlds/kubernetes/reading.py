"""What there is of one name in a cluster, read once, as its user may: for the command line.

Layer: worlds/kubernetes. With the credentials of the user's kubeconfig, and nothing else.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from trainrun.errors import InvalidSpec, TrainRunError
from trainrun_operator.api.resources import TRAINRUN, Resource
from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.kube.api import KubeApi, Object
from trainrun_operator.kube.connection import usual_namespace
from trainrun_operator.kube.errors import KubeError
from trainrun_operator.worlds.kubernetes.answers import NoSuchObject, told
from trainrun_operator.worlds.kubernetes.run_object import RunVersion, run_version
from trainrun_operator.worlds.kubernetes.sweeping.sweep_object import SweepVersion, sweep_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Namesakes:
    """The TrainRun and the TrainSweep of one name: at least one of them is there."""

    run: RunVersion | None
    sweep: SweepVersion | None
    """None also where it cannot be read, while there is a run."""


def read_namesakes(name: str, namespace: str | None) -> Namesakes:
    """What there is of this name; None: in the namespace that the kubeconfig says.

    Raises NoCluster, NoSuchObject, ClusterRefused, KubeError, and InvalidSpec.
    """
    return asyncio.run(_namesakes(name, namespace or usual_namespace()))


def read_one_sweep(name: str, namespace: str | None) -> SweepVersion:
    """The TrainSweep of this name. Raises as `read_namesakes`."""
    return asyncio.run(_one_sweep(name, namespace or usual_namespace()))


async def _namesakes(name: str, namespace: str) -> Namesakes:
    api = await KubeApi.connect()
    try:
        run, sweep = await asyncio.gather(
            _answer(api, TRAINRUN, namespace, name), _answer(api, TRAINSWEEP, namespace, name)
        )
    finally:
        await api.close()
    if isinstance(run, dict):
        return Namesakes(run=run_version(run), sweep=_if_readable(sweep))
    if isinstance(sweep, dict):
        return Namesakes(run=None, sweep=sweep_version(sweep))
    if isinstance(run, NoSuchObject) and isinstance(sweep, NoSuchObject):
        raise NoSuchObject(str(run).replace("no TrainRun", "neither a TrainRun nor a TrainSweep"))
    raise sweep if isinstance(run, NoSuchObject) else run


async def _one_sweep(name: str, namespace: str) -> SweepVersion:
    api = await KubeApi.connect()
    try:
        found = await _answer(api, TRAINSWEEP, namespace, name)
    finally:
        await api.close()
    if isinstance(found, TrainRunError):
        raise found
    return sweep_version(found)


async def _answer(
    api: KubeApi, resource: Resource[Any], namespace: str, name: str
) -> Object | TrainRunError:
    try:
        return await api.get(resource.path(namespace, name))
    except KubeError as error:
        return told(error, "get", resource, namespace, name)


def _if_readable(answer: Object | TrainRunError) -> SweepVersion | None:
    if isinstance(answer, TrainRunError):
        return None
    try:
        return sweep_version(answer)
    except InvalidSpec:
        return None
