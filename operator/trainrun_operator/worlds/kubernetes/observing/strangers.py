"""Pods that bear the labels of a worker and were not created by this operator: told once each.

Layer: worlds/kubernetes. They are no workers and change nothing; their user is told of them, since
most are copies that somebody has made by accident, and such a pod may hold GPUs. Invariant: what is
told of one run is bounded, whoever makes pods with its uid.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator

from trainrun_operator.core.run.plan import Event
from trainrun_operator.kube.errors import KubeError
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact

MOST_TOLD = 10
"""Of one run, while one operator leads."""
LOOK_AGAIN = 10.0
"""Seconds until they are looked at again, where that was refused."""

_log = logging.getLogger(__name__)


class Strangers:
    """Those of one run."""

    def __init__(self, run: str, wake: Callable[[float], None]) -> None:
        """`run` is its name, for messages; `wake` asks for a pass within so many seconds."""
        self._run = run
        self._wake = wake
        self._look_at = 0.0
        self._told: set[str] = set()
        """uids of pods."""
        self._said: set[str] = set()
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
            if str(error) not in self._said:  # once, not with every try
                _log.warning("%s: a pod that is no worker stays: %s", self._run, error)
                self._said.add(str(error))
            self._look_at = time.monotonic() + LOOK_AGAIN
            self._wake(LOOK_AGAIN)
        else:
            self._said.clear()

    def news(self, pods: Iterable[PodFact]) -> Iterator[Event]:
        """Events about those of these pods that were not told yet."""
        for pod in pods:
            if pod.uid in self._told or len(self._told) >= MOST_TOLD:
                continue
            self._told.add(pod.uid)
            message = (
                f"pod {pod.namespace}/{pod.name} has the labels of a worker of run {self._run} but "
                "was not created by this operator: it is ignored"
            )
            yield Event(type="Warning", reason="PodIgnored", message=message)

    def disowned(self, pod: PodFact) -> Event:
        """The event that a worker has lost what makes it one; it is no stranger after that."""
        self._told.add(pod.uid)
        message = (
            f"somebody has removed a label, the seal or the ownerReference of worker {pod.name}: "
            "it cannot take part in the run any more, and is deleted. See who changes pods here"
        )
        return Event(type="Warning", reason="PodDisowned", message=message)
