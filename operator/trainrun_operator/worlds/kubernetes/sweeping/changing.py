"""A user's change of a TrainSweep's spec, made on top of what others have changed.

Layer: worlds/kubernetes. Invariant: what is written follows from the version that it is written
over: of two users at the same time neither undoes what the other has done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from trainrun_operator.api.sweep.resource import TRAINSWEEP
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.connection import usual_namespace
from trainrun_operator.kube.errors import Conflict, KubeError
from trainrun_operator.worlds.kubernetes.answers import ClusterRefused, UserVerb, told
from trainrun_operator.worlds.kubernetes.sweeping.sweep_object import SweepVersion, sweep_version

TRIES = 10
"""The operator writes the status between reading and writing now and then; users rarely do."""
MANAGER = "trainrun"
"""Whose the fields are then, in metadata.managedFields."""

Decide = Callable[[SweepVersion], Mapping[str, object]]
"""From a version to fields below `spec` with their new values; none: nothing is written."""


def change_sweep(name: str, namespace: str | None, decide: Decide) -> None:
    """Read, decide and write, again where somebody else was faster; `decide` may raise.

    Raises NoCluster, NoSuchObject, ClusterRefused, KubeError, and InvalidSpec.
    """
    asyncio.run(_change(name, namespace or usual_namespace(), decide))


async def _change(name: str, namespace: str, decide: Decide) -> None:
    api = await KubeApi.connect()
    verb: UserVerb = "get"
    try:
        for _ in range(TRIES):
            verb = "get"
            version = sweep_version(await api.get(TRAINSWEEP.path(namespace, name)))
            fields = decide(version)
            if not fields:
                return
            version.changed(fields)
            verb = "patch"
            try:
                await _written(api, version, fields)
            except Conflict:
                continue
            return
    except KubeError as error:
        raise told(error, verb, TRAINSWEEP, namespace, name) from error
    finally:
        await api.close()
    raise ClusterRefused(
        f"{namespace}/{name} was changed by somebody else {TRIES} times meanwhile: try again"
    )


async def _written(api: KubeApi, version: SweepVersion, fields: Mapping[str, object]) -> None:
    metadata = version.raw["metadata"]
    body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "spec": dict(fields)}
    path = TRAINSWEEP.path(metadata["namespace"], metadata["name"])
    await api.patch(path, body, manager=MANAGER)
