"""Pods that are not what their labels say, or do not say what they are.

Layer: worlds/kubernetes. Pods that bear the labels of a worker and were not created by this
operator are no workers and change nothing; their user is told of them, once each and of so many at
most, since most are copies that somebody has made by accident, and such a pod may hold GPUs.

Those that another holder of the run had made before we took it over do not know whom to call, and
would train and hold their GPUs for ever: they are deleted. Invariant: only pods that the run owns,
in its own namespace, and that are older than the taking over; whoever has copied a worker since
then keeps it.

Workers that lost a label, the seal or their owner while nobody led are found by their names: nobody
watches such a pod any more, and it would train on, unseen. Invariants: names are unique, so a pod
that is older than the start of an attempt and has the name of one of its workers is that worker,
whatever it bears; one that is still marked is left alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace

from trainrun_operator.core.run.boundary import Event
from trainrun_operator.core.run.view import worker_name
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import KubeError, NotFound
from trainrun_operator.kube.raw import moment
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.pods import ENDED, PodFact
from trainrun_operator.worlds.kubernetes.run_object import ManagedVersion

MOST_REPORTED = 10
"""Of one run, while one operator leads."""
LOOK_AGAIN = 10.0
"""Seconds until they are looked at again, where that was refused."""
MOST_ASKED = 16
"""Names that are asked for in one pass: between two attempts none of a thousand may be there."""
ASK_ON = 1.0
"""Seconds until the next ones."""

_log = logging.getLogger(__name__)


class ForeignPods:
    """Those of one run."""

    def __init__(self, run: str, wake: Callable[[float], None]) -> None:
        """`run` is its name, for messages; `wake` asks for a pass within so many seconds."""
        self._run = run
        self._wake = wake
        self._look_at = 0.0
        self._reported: set[str] = set()
        """uids of pods."""
        self._logged: set[str] = set()
        """What the API server has refused, since it last did what was asked."""

    @property
    def rest(self) -> bool:
        """Whether the API server has refused something about them a moment ago."""
        return time.monotonic() < self._look_at

    async def trying(self, look: Awaitable[None]) -> None:
        """Do what is asked of the API server; no pass fails by pods that are no workers."""
        try:
            await look
        except KubeError as error:
            if str(error) not in self._logged:  # once, not with every try
                _log.warning("%s: a pod that is no worker stays: %s", self._run, error)
                self._logged.add(str(error))
            self._look_at = time.monotonic() + LOOK_AGAIN
            self._wake(LOOK_AGAIN)
        else:
            self._logged.clear()

    def news(self, pods: Iterable[PodFact]) -> Iterator[Event]:
        """Events about those of these pods that were not told yet."""
        for pod in pods:
            if pod.uid in self._reported or len(self._reported) >= MOST_REPORTED:
                continue
            self._reported.add(pod.uid)
            message = (
                f"pod {pod.namespace}/{pod.name} has the labels of a worker of run {self._run} but "
                "was not created by this operator: it is ignored"
            )
            yield Event(type="Warning", reason="PodIgnored", message=message)

    def disowned(self, pod: PodFact) -> Event:
        """The event that a worker has lost what makes it one; it is no stranger after that."""
        self._reported.add(pod.uid)
        message = (
            f"somebody has removed a label, the seal or the ownerReference of worker {pod.name}: "
            "it cannot take part in the run any more, and is deleted. See who changes pods here"
        )
        return Event(type="Warning", reason="PodDisowned", message=message)


def leftovers(run: ManagedVersion, foreign_pods: Iterable[PodFact]) -> tuple[PodFact, ...]:
    """Those of the strangers that were workers of the run before its holder took it over."""
    since = run.status.taken_over
    if since is None:
        return ()
    return tuple(
        pod
        for pod in foreign_pods
        if pod.owner_uid == run.uid and pod.namespace == run.namespace and pod.created <= since
    )


def holds_something(pod: PodFact) -> bool:
    """Nobody has deleted it yet, and it has not ended."""
    return pod.deletion is None and pod.phase not in ENDED


class OrphanSearch:
    """Looks for those of the attempt that was the newest when we began to lead this run."""

    def __init__(self, api: KubeApi, pods: PodIndex, wake: Callable[[float], None]) -> None:
        """`wake` asks for a pass within so many seconds."""
        self._api = api
        self._pods = pods
        self._wake = wake
        self._left: list[PodFact] | None = None
        """Those that were not asked for yet; None: we have not begun."""

    @property
    def is_done(self) -> bool:
        """Whether all were looked for."""
        return self._left == []

    async def look(self, run: ManagedVersion) -> None:
        """Miss those of the next names that are there. Raises KubeError; what was answered until
        then is not asked again."""
        left = _newest(run) if self._left is None else self._left
        seen = self._seen(run)
        self._left = [worker for worker in left if worker.name not in seen]
        for worker in self._left[:MOST_ASKED]:
            await self._ask(worker, run)
            self._left.remove(worker)
        if self._left:
            self._wake(ASK_ON)

    async def _ask(self, worker: PodFact, run: ManagedVersion) -> None:
        try:
            raw = await self._api.get(f"/api/v1/namespaces/{run.namespace}/pods/{worker.name}")
        except NotFound:
            return
        self._pods.learn(raw)  # the watch may be behind
        created = moment(raw["metadata"], "creationTimestamp")
        if created is None or created > worker.created or worker.name in self._seen(run):
            return
        self._pods.miss(replace(worker, uid=raw["metadata"]["uid"], created=created))

    def _seen(self, run: ManagedVersion) -> set[str]:
        return {pod.name for pod in self._pods.of(run.uid)}


def _newest(run: ManagedVersion) -> list[PodFact]:
    """The workers of the newest attempt. Of a run that has ended, or is suspended, none is looked
    for: its workers had stopped."""
    record = run.status.start_record
    if record is None or run.status.finished or run.status.is_true("Suspended"):
        return []
    return [
        PodFact(
            namespace=run.namespace,
            name=worker_name(run.config, slot=slot, created_for=creation),
            uid="",
            run_uid=run.uid,
            slot=slot,
            creation=creation,
            created=record.time,
        )
        for slot, creation in enumerate(record.roster)
    ]
