"""Workers that lost a label, the seal or their owner while nobody led: found by their names.

Layer: worlds/kubernetes. Nobody watches such a pod any more, and it would train on, unseen.
Invariants: names are unique, so a pod that is older than the start of an attempt and has the name
of one of its workers is that worker, whatever it bears; one that is still marked is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from trainrun_operator.core.run.view import worker_name
from trainrun_operator.kube.api import KubeApi
from trainrun_operator.kube.errors import NotFound
from trainrun_operator.kube.raw import moment
from trainrun_operator.worlds.kubernetes.observing.pod_index import PodIndex
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact
from trainrun_operator.worlds.kubernetes.run_object import LedVersion

MOST_ASKED = 16
"""Names that are asked for in one pass: between two attempts none of a thousand may be there."""
ASK_ON = 1.0
"""Seconds until the next ones."""


@dataclass(frozen=True, slots=True)
class _Worker:
    """One of the newest attempt."""

    name: str
    slot: int
    creation: int
    started: datetime
    """When the attempt was."""


class Recall:
    """Looks for those of the attempt that was the newest when we began to lead this run."""

    def __init__(self, api: KubeApi, pods: PodIndex, wake: Callable[[float], None]) -> None:
        """`wake` asks for a pass within so many seconds."""
        self._api = api
        self._pods = pods
        self._wake = wake
        self._left: list[_Worker] | None = None
        """Those that were not asked for yet; None: we have not begun."""

    @property
    def is_done(self) -> bool:
        """Whether all were looked for."""
        return self._left == []

    async def look(self, run: LedVersion) -> None:
        """Miss those of the next names that are there. Raises KubeError; what was answered until
        then is not asked again."""
        left = _newest(run) if self._left is None else self._left
        seen = self._seen(run)
        self._left = [it for it in left if it.name not in seen]
        for worker in self._left[:MOST_ASKED]:
            await self._ask(worker, run)
            self._left.remove(worker)
        if self._left:
            self._wake(ASK_ON)

    async def _ask(self, worker: _Worker, run: LedVersion) -> None:
        try:
            raw = await self._api.get(f"/api/v1/namespaces/{run.namespace}/pods/{worker.name}")
        except NotFound:
            return
        self._pods.learn(raw)  # the watch may be behind
        created = moment(raw["metadata"], "creationTimestamp")
        if created is None or created > worker.started or worker.name in self._seen(run):
            return
        pod = PodFact(
            namespace=run.namespace,
            name=worker.name,
            uid=raw["metadata"]["uid"],
            run_uid=run.uid,
            slot=worker.slot,
            creation=worker.creation,
            created=created,
        )
        self._pods.miss(pod)

    def _seen(self, run: LedVersion) -> set[str]:
        return {pod.name for pod in self._pods.of(run.uid)}


def _newest(run: LedVersion) -> list[_Worker]:
    """The workers of the newest attempt. Of a run that has ended, or is suspended, none is looked
    for: its workers had stopped."""
    record = run.status.start_record
    if record is None or run.status.finished or run.status.is_true("Suspended"):
        return []
    return [
        _Worker(worker_name(run.config, slot=slot, created_for=it), slot, it, record.time)
        for slot, it in enumerate(record.roster)
    ]
