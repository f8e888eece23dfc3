"""The pods of clerks: one for each sweep that is led, another where one is not heard.

Layer: cluster. A clerk is never counted as a failure, and two of them harm nothing: so there is no
waiting for the end of one, only for a word of the next.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from trainrun_operator.runtime.clerk_desk import ClerkDesk
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact
from trainrun_operator.worlds.kubernetes.render import OperatorPlace
from trainrun_operator.worlds.kubernetes.sweeping.clerk_pod import (
    ClerkImage,
    clerk_pod,
    next_creation,
)

DEAF = timedelta(seconds=45)
"""How long a clerk that runs may say nothing until it is replaced."""


class Clerks:
    """Of all sweeps of an operator."""

    def __init__(
        self,
        api: KubeApi,
        *,
        pods: PodIndex,
        image: ClerkImage,
        place: OperatorPlace,
        guard: Callable[[], None],
    ) -> None:
        """`guard` raises where another operator leads."""
        self._api = api
        self._pods = pods
        self._image = image
        self._place = place
        self._guard = guard

    async def look_after(self, sweep: TrainSweep, desk: ClerkDesk, *, wanted: bool) -> str:
        """See to it that a clerk is there, or none. Returns why there can be none, if that is so:
        its pod is refused, or has not come to a node. Raises KubeError."""
        pods = self._pods.of(sweep.metadata.uid)
        living = [pod for pod in pods if pod.deletion is None]
        good = [pod for pod in living if wanted and not _is_lost(pod, desk)]
        for pod in living:
            if pod not in good[:1]:
                await self._delete(pod)
        if not wanted:
            return ""
        if good:
            return _waiting(good[0])
        try:
            await self._create(sweep, next_creation(pods))
        except (Forbidden, Invalid) as error:
            return f"the pod of the clerk is refused: {error}"
        return ""

    async def _create(self, sweep: TrainSweep, creation: int) -> None:
        body = clerk_pod(sweep, creation=creation, image=self._image, place=self._place)
        path = f"/api/v1/namespaces/{sweep.metadata.namespace}/pods"
        try:
            self._pods.learn(await self._api.post(path, body, guard=self._guard))
        except AlreadyExists:
            self._pods.learn(await self._api.get(f"{path}/{body['metadata']['name']}"))

    async def _delete(self, pod: PodFact) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            answer = await self._api.delete(
                path, body={"preconditions": {"uid": pod.uid}}, guard=self._guard
            )
        except (NotFound, Conflict):
            self._pods.forget(pod)
        else:
            if answer.get("kind") == "Pod":
                self._pods.learn(answer)


def _is_lost(pod: PodFact, desk: ClerkDesk) -> bool:
    if pod.phase in ("Failed", "Succeeded"):
        return True
    running = pod.phase == "Running"
    return running and desk.silent_for > DEAF and datetime.now(UTC) - pod.created > DEAF


def _waiting(pod: PodFact) -> str:
    """Why it does not run, where somebody has said so."""
    if pod.scheduled is not None and pod.scheduled.status == "False":
        return f"the clerk's pod {pod.name} has no node: {pod.scheduled.message}"
    for container in pod.containers:
        if container.state == "Waiting" and container.reason not in ("", "ContainerCreating"):
            return f"the clerk's pod {pod.name} waits: {container.reason}: {container.message}"
    return ""
