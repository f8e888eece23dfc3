"""Foreign pods, with the labels of a worker that they are not, and workers that lost their labels.

Layer: worlds/kubernetes. A pod with the labels of a worker that this operator did not create is not
a worker and changes nothing. The user gets one event for each, up to a limit: most are accidental
copies, and such a pod may hold GPUs.

Pods that another holder of the run created before the takeover do not know this operator, and would
train and hold their GPUs without end: they are deleted. Invariant: only pods that the run owns, in
its own namespace, and that are older than the takeover; later copies of a worker are kept.

Workers that lost a label, the signature or their owner while no operator led are found by their
names: the watch no longer shows such a pod, and it would keep training. Invariants: names are
unique, so a pod that is older than the start of an attempt and has the name of one of its workers
is that worker, whatever its labels; one that still has its marks is left alone.
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
"""Most events about foreign pods of one run, while one operator leads."""
LOOK_AGAIN = 10.0
"""Seconds until the next try after the API server refused one."""
MOST_ASKED = 16
"""Names requested in one pass: between two attempts none of a thousand may exist."""
ASK_ON = 1.0
"""Seconds until the next names are requested."""

_log = logging.getLogger(__name__)


class ForeignPods:
    """The foreign pods of one run."""

    def __init__(self, run: str, wake: Callable[[float], None]) -> None:
        """`run` is its name, for messages; `wake` requests a pass within the given seconds."""
        self._run = run
        self._wake = wake
        self._look_at = 0.0
        self._reported: set[str] = set()
        """Uids of pods that have an event."""
        self._logged: set[str] = set()
        """Errors logged since the API server last accepted a request."""

    @property
    def rest(self) -> bool:
        """Whether the API server refused a request about them less than LOOK_AGAIN ago."""
        return time.monotonic() < self._look_at

    async def trying(self, look: Awaitable[None]) -> None:
        """Do what `look` asks of the API server; foreign pods must not make a pass fail."""
        try:
            await look
        except KubeError as error:
            if str(error) not in self._logged:  # once, not on every try
                _log.warning("%s: a pod that is not a worker stays: %s", self._run, error)
                self._logged.add(str(error))
            self._look_at = time.monotonic() + LOOK_AGAIN
            self._wake(LOOK_AGAIN)
        else:
            self._logged.clear()

    def news(self, pods: Iterable[PodFact]) -> Iterator[Event]:
        """Events about those of these pods that have none yet."""
        for pod in pods:
            if pod.uid in self._reported or len(self._reported) >= MOST_REPORTED:
                continue
            self._reported.add(pod.uid)
            message = (
                f"pod {pod.namespace}/{pod.name} has the labels of a worker of run {self._run}, "
                "but this operator did not create it: it is ignored"
            )
            yield Event(type="Warning", reason="PodIgnored", message=message)

    def disowned(self, pod: PodFact) -> Event:
        """The event that a worker lost what marks it as one; it gets no event as a foreign pod."""
        self._reported.add(pod.uid)
        message = (
            f"a label, the signature or the ownerReference of worker {pod.name} was removed from "
            "outside, so it can no longer take part and is deleted. Find out what changes pods here"
        )
        return Event(type="Warning", reason="PodDisowned", message=message)


def leftovers(run: ManagedVersion, foreign_pods: Iterable[PodFact]) -> tuple[PodFact, ...]:
    """The foreign pods that were workers of the run before its holder took it over."""
    since = run.status.taken_over
    if since is None:
        return ()
    return tuple(
        pod
        for pod in foreign_pods
        if pod.owner_uid == run.uid and pod.namespace == run.namespace and pod.created <= since
    )


def holds_something(pod: PodFact) -> bool:
    """Whether it is neither deleted nor ended."""
    return pod.deletion is None and pod.phase not in ENDED


class OrphanSearch:
    """Looks for unmarked workers of the newest attempt at the time when we began to lead."""

    def __init__(self, api: KubeApi, pods: PodIndex, wake: Callable[[float], None]) -> None:
        """`wake` requests a pass within the given seconds."""
        self._api = api
        self._pods = pods
        self._wake = wake
        self._left: list[PodFact] | None = None
        """Workers not requested yet; None: not begun."""

    @property
    def is_done(self) -> bool:
        """Whether the search is complete."""
        return self._left == []

    async def look(self, run: ManagedVersion) -> None:
        """Request the next names; each pod found counts as missed. Raises KubeError; names answered
        before that are not requested again."""
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
    """The workers of the newest attempt; none for a run that has ended or is suspended, since its
    workers had stopped."""
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
