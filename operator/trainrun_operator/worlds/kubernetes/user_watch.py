"""Follows a user's TrainRuns and TrainSweeps, and reads one of them, its pods and their output.

Layer: worlds/kubernetes. Uses only the credentials of the user's kubeconfig, over one connection,
and only the verbs get, list and watch. Use it in the event loop that made it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from trainrun.errors import InvalidSpec
from trainrun_operator.api.resources import TRAINRUN, Resource
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.connection import usual_namespace
from trainrun_operator.kube.errors import KubeError, NoCluster, Unavailable
from trainrun_operator.kube.informer import EVERYWHERE, Informer
from trainrun_operator.kube.raw import mapping, text
from trainrun_operator.worlds.kubernetes.pod_logs import WorkerPod, last_lines, worker_pods
from trainrun_operator.worlds.kubernetes.run_object import Raw, RunVersion, run_version
from trainrun_operator.worlds.kubernetes.sweep_objects import SweepVersion, sweep_version
from trainrun_operator.worlds.kubernetes.user_client import user_error

T = TypeVar("T")

RESOURCES: dict[str, Resource[Any]] = {TRAINRUN.kind: TRAINRUN, TRAINSWEEP.kind: TRAINSWEEP}
"""What is followed."""

LINES_WITHIN = 30.0
"""Seconds for the last lines of a pod: those of a node that hangs never end."""


class _GrowingList(Informer[T]):
    """Shows each object of a list as it arrives: a long one takes a while."""

    _at_once = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableRun:
    """A TrainRun or a TrainSweep whose spec or status this version of the command cannot read."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    storage: str
    """URI of its storage; empty: not known, as `phase`."""
    phase: str
    why: str


@dataclass(slots=True)
class UserWatch:
    """The TrainRuns and TrainSweeps of some namespaces, or of all."""

    _api: KubeApi
    namespaces: tuple[str, ...]
    """An empty one: all."""
    informers: dict[tuple[str, str], Informer[Any]] = field(default_factory=dict)
    """By kind and namespace, once they are followed."""

    @classmethod
    async def connect(
        cls, namespace: str | None, *, everywhere: bool, needed: bool
    ) -> UserWatch | None:
        """Read the kubeconfig; sends nothing yet. `namespace` None: the kubeconfig's. None: there
        is no cluster, and none is needed. Raises NoCluster."""
        try:
            api = await KubeApi.connect()
        except NoCluster:
            if needed:
                raise
            return None
        return cls(api, (EVERYWHERE if everywhere else namespace or usual_namespace(),))

    @classmethod
    async def of_cluster(cls, namespaces: tuple[str, ...]) -> UserWatch:
        """Of the cluster that we run in. No namespaces: all. Raises NoCluster."""
        return cls(await KubeApi.connect(), namespaces or (EVERYWHERE,))

    async def follow(
        self,
        *,
        project: Callable[[RunVersion | SweepVersion], T],
        unreadable: Callable[[UnreadableRun], T],
        key: Callable[[T], str],
        on_change: Callable[[T | None, T | None], None],
    ) -> None:
        """Call `on_change` with (before, after) of the projection of each TrainRun and TrainSweep,
        forever."""

        def projected(kind: str, raw: dict[str, Any]) -> T:
            try:
                return project(_version(kind, raw))
            except InvalidSpec as error:
                return unreadable(_unreadable(kind, raw, error))

        self.informers = {
            (kind, namespace): _GrowingList(
                self._api,
                path=resource.path(namespace),
                params={},
                project=partial(projected, kind),
                key=key,
                on_change=on_change,
            )
            for kind, resource in RESOURCES.items()
            for namespace in self.namespaces
        }
        try:
            async with asyncio.TaskGroup() as tasks:
                for informer in self.informers.values():
                    informer.follow()
                    tasks.create_task(informer.run())
        finally:
            await self._api.close()

    @property
    def listed(self) -> bool:
        """All TrainRuns were listed."""
        runs = [it for (kind, _), it in self.informers.items() if kind == TRAINRUN.kind]
        return bool(runs) and all(informer.synced.is_set() for informer in runs)

    async def read(self, namespace: str, name: str) -> RunVersion:
        """One TrainRun as it is now. Raises NoSuchObject, ClusterRefused, InvalidSpec."""
        try:
            return run_version(await self._api.get(TRAINRUN.path(namespace, name)))
        except KubeError as error:
            raise user_error(error, "get", TRAINRUN, namespace, name) from error

    async def read_sweep(self, namespace: str, name: str) -> SweepVersion:
        """One TrainSweep as it is now. Raises as `read`."""
        try:
            return sweep_version(await self._api.get(TRAINSWEEP.path(namespace, name)))
        except KubeError as error:
            raise user_error(error, "get", TRAINSWEEP, namespace, name) from error

    async def pods(self, namespace: str, uid: str) -> list[WorkerPod]:
        """The worker pods of a run. Raises KubeError."""
        return await worker_pods(self._api, namespace, uid)

    async def lines(self, pod: WorkerPod, *, tail: int) -> list[str]:
        """The last lines of a pod, none if it cannot tell them now. Raises KubeError."""
        try:
            async with asyncio.timeout(LINES_WITHIN):
                return [line.text for line in await last_lines(self._api, pod, tail=tail)]
        except TimeoutError as error:
            why = f"the output of pod {pod.name} did not come within {LINES_WITHIN:.0f} s"
            raise Unavailable(why) from error


def _version(kind: str, raw: Raw) -> RunVersion | SweepVersion:
    """Read an object of a list, which leaves its kind out. Raises InvalidSpec."""
    if kind == TRAINSWEEP.kind:
        return sweep_version({**TRAINSWEEP.head(), **raw})
    return run_version({**TRAINRUN.head(), **raw})


def _unreadable(kind: str, raw: Raw, error: InvalidSpec) -> UnreadableRun:
    metadata = raw["metadata"]
    return UnreadableRun(
        kind=kind,
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        uid=str(metadata["uid"]),
        version=str(metadata["resourceVersion"]),
        storage=text(mapping(raw, "spec", "storage"), "uri"),
        phase=text(mapping(raw, "status"), "phase"),
        why=str(error),
    )
