"""The clerks' pods: one per led sweep, and a new one where a clerk is silent.

Layer: cluster. The end of a clerk never counts as a failure, and two clerks do no harm. So the
operator does not wait until the old clerk ends, only until the new one calls.
"""

from __future__ import annotations

import time
from datetime import timedelta

from trainrun_operator.api.sweep.spec import TrainSweep
from trainrun_operator.core.run.storage import RENEWED_AFTER
from trainrun_operator.core.sweep.boundary import CLERK_REFUSED, ClerkUnknown
from trainrun_operator.kube.errors import AlreadyExists, KubeError, is_refusal
from trainrun_operator.runtime.clerk_exchange import ClerkExchange
from trainrun_operator.worlds.kubernetes.clerk_pod import (
    ClerkImage,
    clerk_hash,
    clerk_pod,
    next_creation,
    resources_of,
)
from trainrun_operator.worlds.kubernetes.observing.facts import held_back
from trainrun_operator.worlds.kubernetes.observing.pods import ENDED, PodFact
from trainrun_operator.worlds.kubernetes.pod_writes import delete_pod
from trainrun_operator.worlds.kubernetes.world import WorldDependencies

DEAF = timedelta(seconds=45)
"""How long a running clerk may be silent before it is replaced."""

OUT_OF_MEMORY = 3
"""Out-of-memory ends of a clerk from which on they are no accident."""
OOM = "OOMKilled"
"""The kubelet's reason for such an end."""
UNPULLED = ("ErrImagePull", "ImagePullBackOff")
"""The kubelet's reasons for a container without its image."""


class Clerks:
    """The clerks of all sweeps of an operator."""

    def __init__(self, around: WorldDependencies, image: ClerkImage) -> None:
        self._around = around
        self._image = image
        self._running_since: dict[str, dict[str, float]] = {}
        """By the uid of the sweep and of the pod: since when we know that it runs, by our own
        monotonic clock."""

    async def look_after(
        self, sweep: TrainSweep, exchange: ClerkExchange, *, wanted: bool
    ) -> ClerkUnknown | None:
        """Ensure that there is a clerk if one is `wanted`, else none. Returns why it cannot answer,
        if that is known: its pod may not be created or deleted, has no node, or runs out of memory.
        Raises KubeError."""
        around = self._around
        pods = around.pods.of(sweep.metadata.uid)
        living = [pod for pod in pods if pod.deletion is None]
        ages = self._ages(sweep.metadata.uid, living if wanted else [])
        made_for = clerk_hash(sweep)
        good = [
            pod
            for pod in living
            if wanted and not _is_lost(pod, made_for, exchange, ages.get(pod.uid))
        ]
        undeleted = ""
        for pod in living:
            if pod in good[:1]:
                continue
            try:
                await delete_pod(
                    pod, api=around.api, pods=around.pods, guard=around.check_leadership
                )
            except KubeError as error:
                if not (wanted and is_refusal(error)):
                    raise  # tried again until it is gone
                undeleted = f"the clerk's pod {pod.name} cannot be deleted: {error}"
        if not wanted:
            return None
        if good:
            return _why_silent(good[0], _memory(sweep))
        if undeleted:
            return _no_clerk(undeleted)  # a new pod each time would fill the cluster
        try:
            await self._create(sweep, next_creation(pods))
        except KubeError as error:
            if not is_refusal(error):
                raise
            message = f"the API server refuses the clerk's pod: {error}"
            return ClerkUnknown(reason=CLERK_REFUSED, message=message)
        return None

    def _ages(self, sweep_uid: str, pods: list[PodFact]) -> dict[str, timedelta]:
        """By uid, how long each of these pods has run, as far as we know."""
        before, now = self._running_since.pop(sweep_uid, {}), time.monotonic()
        running = [pod.uid for pod in pods if pod.phase == "Running"]
        since_when = {uid: before.get(uid, now) for uid in running}
        if since_when:
            self._running_since[sweep_uid] = since_when
        return {uid: timedelta(seconds=now - since) for uid, since in since_when.items()}

    async def _create(self, sweep: TrainSweep, creation: int) -> None:
        around = self._around
        body = clerk_pod(sweep, creation=creation, image=self._image, place=around.place)
        path = f"/api/v1/namespaces/{sweep.metadata.namespace}/pods"
        try:
            around.pods.learn(await around.api.post(path, body, guard=around.check_leadership))
        except AlreadyExists:
            around.pods.learn(await around.api.get(f"{path}/{body['metadata']['name']}"))


def _is_lost(pod: PodFact, made_for: str, exchange: ClerkExchange, age: timedelta | None) -> bool:
    if pod.phase in ENDED or pod.template_hash != made_for:
        return True
    if age is None:  # it waits for a node or its image, and cannot have called yet
        return False
    return min(exchange.silent_for, age) > DEAF or is_renewed(exchange.refused_for, age)


def is_renewed(refused: timedelta, age: timedelta) -> bool:
    """As for workers that the store refuses: only a new pod sees a changed Secret."""
    past = [after for after in RENEWED_AFTER if after <= refused.total_seconds()]
    return bool(past) and age.total_seconds() >= past[-1]


def _memory(sweep: TrainSweep) -> str:
    return str(resources_of(sweep)["limits"].get("memory", "which is that of its node"))


def _why_silent(pod: PodFact, memory: str) -> ClerkUnknown | None:
    if why := held_back(pod):
        return _no_clerk(f"the clerk's pod {pod.name} waits: {why}")
    if pod.scheduled is not None and pod.scheduled.status == "False":
        return _no_clerk(f"the clerk's pod {pod.name} has no node: {pod.scheduled.message}")
    for container in pod.containers:
        ended = container.state == "Terminated"
        times = container.restarts + ended
        if times >= OUT_OF_MEMORY and OOM in (container.reason, container.ended_before):
            message = (
                f"the clerk's pod {pod.name} ran out of memory {times} times (limit {memory}); "
                "trials continue, but the log gets no new parameters or results. Raise "
                "spec.clerk.resources.limits.memory, or report the objective at fewer steps"
            )
            return ClerkUnknown(reason="OutOfMemory", message=message)
        if container.state == "Waiting" and container.reason not in ("", "ContainerCreating"):
            why = f"{container.reason}: {container.message}"
            if container.reason in UNPULLED:
                # The kubelet's message comes last: it may be long.
                why = (
                    "the operator's image cannot be pulled here; if its registry needs "
                    "credentials, spec.run.workers.template must name a Secret of this namespace "
                    f"in imagePullSecrets: {why}"
                )
            return _no_clerk(f"the clerk's pod {pod.name} waits: {why}")
    return None


def _no_clerk(message: str) -> ClerkUnknown:
    return ClerkUnknown(reason="NoClerk", message=message)
