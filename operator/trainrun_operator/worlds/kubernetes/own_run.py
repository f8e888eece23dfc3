"""A TrainRun that a user's drill creates, watches, disturbs and removes in a cluster.

Layer: worlds/kubernetes. Uses only the credentials of the user's kubeconfig.
Invariant: it touches only the run of this name and its own pods, and deletes by uid.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.base import GROUP
from trainrun_operator.api.resources import TRAINRUN, TrainRun
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.connection import usual_namespace
from trainrun_operator.kube.errors import Conflict, NotFound, Unavailable
from trainrun_operator.kube.raw import mapping
from trainrun_operator.worlds.kubernetes.access_reviews import Right, missing_rights
from trainrun_operator.worlds.kubernetes.pod_logs import WorkerPod, worker_pods
from trainrun_operator.worlds.kubernetes.run_object import RunVersion, run_version

LOOK = 0.3
"""Seconds between two polls."""
CREATING = 10.0
"""Seconds to wait for the answer whether the run was created."""

NEEDED = (
    *(
        Right(verb=verb, group=GROUP, resource=TRAINRUN.plural)
        for verb in ("create", "get", "update", "delete")
    ),
    *(Right(verb=verb, resource="pods") for verb in ("list", "delete")),
)
"""The rights for every call of a drill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersCluster:
    """The cluster that the kubeconfig names."""

    api: KubeApi

    def namespace_of(self, run: TrainRun) -> str:
        """Where kubectl would create it: the namespace in its file, else the kubeconfig's."""
        metadata = run.metadata
        return metadata.namespace if "namespace" in metadata.model_fields_set else usual_namespace()

    async def missing_rights(self, namespace: str) -> list[str]:
        """Permissions that a drill needs in this namespace and its user lacks, such as `delete
        pods`. Raises KubeError."""
        return [str(right) for right in await missing_rights(self.api, namespace, NEEDED)]

    async def runs_with(self, namespace: str, label: str, value: str) -> list[RunVersion]:
        """The readable runs with this label. Raises KubeError."""
        params = {"labelSelector": f"{label}={value}"}
        found = []
        for raw in (await self.api.get(TRAINRUN.path(namespace), params=params))["items"]:
            with suppress(InvalidSpec):  # a newer version of TrainRun may have made it
                found.append(run_version(raw))
        return found

    async def delete_run(self, version: RunVersion) -> None:
        """Delete this run, not another one of the same name. Raises KubeError."""
        metadata = version.run.metadata
        body = {"propagationPolicy": "Background", "preconditions": {"uid": version.uid}}
        with suppress(NotFound):
            await self.api.delete(TRAINRUN.path(metadata.namespace, metadata.name), body=body)

    def own_run(self, document: Mapping[str, Any]) -> OwnRun:
        """A run to create from this TrainRun, whose metadata has name and namespace."""
        return OwnRun(api=self.api, document=document)


@asynccontextmanager
async def users_cluster() -> AsyncIterator[UsersCluster]:
    """A connection to the user's cluster. Raises NoCluster."""
    async with KubeApi.connected() as api:
        yield UsersCluster(api=api)


@dataclass(slots=True, kw_only=True)
class OwnRun:
    """One run of a drill. Every call raises KubeError unless it says otherwise."""

    api: KubeApi
    document: Mapping[str, Any]
    """The TrainRun; metadata has name and namespace."""
    _creating: asyncio.Task[dict[str, Any]] | None = field(default=None)
    _uid: str = ""

    @property
    def name(self) -> str:
        """metadata.name."""
        return str(self.document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return str(self.document["metadata"]["namespace"])

    async def create(self) -> RunVersion:
        """Create the run."""
        path = TRAINRUN.path(self.namespace)
        # A caller that stops waiting for the answer must still learn whether the run exists.
        self._creating = asyncio.create_task(self.api.post(path, self.document))
        version = run_version(await asyncio.shield(self._creating))
        self._uid = version.uid
        return version

    async def read(self) -> RunVersion | None:
        """The current version; None: the API server does not answer."""
        try:
            return run_version(await self.api.get(self._path))
        except Unavailable:
            return None

    async def suspend(self) -> None:
        """Suspend the run; staged checkpoints are stored. Does nothing if the run is gone."""
        while True:
            try:
                raw = await self.api.get(self._path)
                spec = {**raw["spec"], "suspend": True}
                await self.api.put(self._path, {**raw, "spec": spec})
            except NotFound:
                return
            except (Conflict, Unavailable):
                await asyncio.sleep(LOOK)  # mostly because its operator wrote meanwhile
            else:
                return

    async def delete_pod(self, slot: int, *, grace: float | None) -> bool:
        """Delete the worker of this slot; `grace` in seconds, None: its template's. Returns whether
        there was one."""
        pods = [pod for pod in await self._pods() if pod.slot == slot and not pod.over]
        if not pods:
            return False
        body = None if grace is None else {"gracePeriodSeconds": int(grace)}
        try:
            await self.api.delete(pods[-1].path, body=body)
        except NotFound:
            return False
        return True

    async def works(self) -> bool:
        """Whether a worker of the run may still be running."""
        try:
            return any(not pod.over for pod in await self._pods())
        except Unavailable:
            return True

    async def remove(self, *, patience: float) -> bool:
        """Delete the run and wait at most `patience` seconds until its pods are gone; returns
        whether they are. Also works if the run was never created."""
        if self._creating is not None and not self._creating.done():
            await asyncio.wait({self._creating}, timeout=CREATING)
        if self._creating is None or self._refused(self._creating):
            return True
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            try:
                if await self._is_gone():
                    return True
            except Unavailable:
                pass
            await asyncio.sleep(LOOK)
        return False

    async def _is_gone(self) -> bool:
        try:
            raw = await self.api.delete(self._path, body={"propagationPolicy": "Background"})
        except NotFound:
            return not self._uid or not await self._pods()
        self._uid = self._uid or str(mapping(raw, "metadata").get("uid", ""))
        return False

    async def _pods(self) -> list[WorkerPod]:
        return await worker_pods(self.api, self.namespace, self._uid)

    def _refused(self, creating: asyncio.Task[dict[str, Any]]) -> bool:
        """Whether the creation was refused. Without an answer the run may exist."""
        if not creating.done() or creating.cancelled():
            return False
        error = creating.exception()
        return error is not None and not isinstance(error, Unavailable)

    @property
    def _path(self) -> str:
        return TRAINRUN.path(self.namespace, self.name)
