"""Pods that bear the labels of a worker and were not created by this operator: told once each.

Layer: worlds/kubernetes. They are no workers and change nothing; their user is told of them, since
most are copies that somebody has made by accident, and such a pod may hold GPUs. Invariant: what is
told of one run is bounded, whoever makes pods with its uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainrun_operator.core.run.plan import Event
from trainrun_operator.worlds.kubernetes.observing.pods import PodFact

MOST_TOLD = 10
"""Of one run, while one operator leads."""


class Strangers:
    """Those of one run."""

    def __init__(self, run: str) -> None:
        """`run` is its name, for messages."""
        self._run = run
        self._told: set[str] = set()
        """uids of pods."""

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
