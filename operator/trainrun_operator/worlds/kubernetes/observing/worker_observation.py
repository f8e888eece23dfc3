"""Everything that is known of one worker at one moment, for those who draw conclusions from it.

Layer: worlds/kubernetes; pure, no clock of its own. What carries no time of its own (taints, failed
pulls) is known since this operator has seen it. What goes away and comes back is new again. After a
restart of the operator everything is new: timeouts that depend on it begin anew, none is shortened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from trainrun_operator.core.run.boundary import WorkerPhase
from trainrun_operator.worlds.base import AgentContact
from trainrun_operator.worlds.kubernetes.observing.nodes import NodeFact, NoticeTaint
from trainrun_operator.worlds.kubernetes.observing.pods import ENDED, ContainerFact, PodFact

ANSWERS = timedelta(seconds=15)
"""An agent heard so lately is alive, whatever the API server thinks of its node: agents call every
10 s at least."""
SKEW = timedelta(seconds=3)
"""A node's clock may differ from the API server's by this much, seconds being cut off included."""
PLACED = "placed"
"""The sighting that begins when the worker is first seen on its node."""
RUNS = "runs"
"""The sighting that begins when the container that trains is first seen running."""
NODE_GONE = "node gone"
"""The sighting that begins when the node's object is first missed."""
SIGKILLED, SIGTERMED = 137, 143
"""Exit codes of a container that the kubelet has ended, or somebody else."""
ENDS = "ends"
"""The sighting that begins when the container that trains is first seen to have ended so."""
SETTLING = timedelta(seconds=5)
"""So long the kubelet may take to say why, at the end of the pod; others may run on in it."""


class LastSeenTimes:
    """Of the workers of one run, by the uid of their pods."""

    def __init__(self) -> None:
        self._first: dict[str, dict[str, datetime]] = {}

    def since(self, subject: str, what: str) -> datetime | None:
        """Since when this could be seen at the last update; None if it could not."""
        return self._first.get(subject, {}).get(what)

    def update(self, subject: str, present: Iterable[str], now: datetime) -> Mapping[str, datetime]:
        """This is what can be seen of the subject now; returns since when each can be seen."""
        before = self._first.get(subject, {})
        seen = self._first[subject] = {what: before.get(what, now) for what in present}
        return seen

    def keep(self, subjects: Collection[str]) -> None:
        """Forget all other subjects: their pods are gone."""
        for gone in self._first.keys() - set(subjects):
            del self._first[gone]


def is_ending(pod: PodFact, training: str) -> bool:
    """Its container was ended by a signal, and the end of the pod, which tells why, is to come."""
    container = pod.container(training)
    if container is None or pod.phase in ENDED or pod.deletion is not None:
        return False
    signalled = container.exit_code in (SIGKILLED, SIGTERMED)
    return container.state == "Terminated" and signalled and container.reason != "OOMKilled"


def phase_of(pod: PodFact, training: str) -> WorkerPhase:
    """Judged by the container that trains: sidecars may run on after its end."""
    if pod.phase in ENDED:
        return "Ended"
    match pod.container(training):
        case ContainerFact(state="Terminated"):
            return "Ended"
        case ContainerFact(state="Running"):
            return "Running"
        case _:
            return "Pending"


@dataclass(frozen=True, kw_only=True)
class WorkerObservation:
    """One worker, its node and its agent."""

    pod: PodFact
    node: NodeFact | None
    """None: not placed, or nodes may not be looked at."""
    contact: AgentContact
    training: str
    """Name of the container that trains."""
    now: datetime
    since: Mapping[str, datetime]
    """Sightings: str(taint), PLACED, RUNS, NODE_GONE, stages of a Pending pod."""
    notices: Sequence[NoticeTaint]

    @cached_property
    def container(self) -> ContainerFact | None:
        """The one that trains, once the kubelet has told of it."""
        return self.pod.container(self.training)

    @cached_property
    def phase(self) -> WorkerPhase:
        """See phase_of; one that is ending has not ended."""
        if is_ending(self.pod, self.training) and self.seen_for(ENDS) < SETTLING:
            return "Running"
        return phase_of(self.pod, self.training)

    @property
    def answers(self) -> bool:
        """Its agent was heard a moment ago."""
        return self.contact.state is not None and self.contact.silent_for < ANSWERS

    @property
    def disrupted_by(self) -> str:
        """Reason of the pod's DisruptionTarget condition; "" where there is none."""
        disruption = self.pod.disruption
        if disruption is None or disruption.status != "True":
            return ""
        return disruption.reason or "DisruptionTarget"

    @cached_property
    def finished(self) -> datetime | None:
        """When an Ended worker ended, on its node's clock; None where the kubelet does not say."""
        if self.phase != "Ended":
            return None
        if self.container is not None and self.container.state == "Terminated":
            return self.container.finished
        failed = (c.finished for c in self.pod.containers if c.init and c.exit_code)
        return max((time for time in failed if time is not None), default=None)

    def ended_before(self, time: datetime | None) -> bool:
        """The worker had ended by itself before somebody took away what was left of it."""
        return time is not None and self.finished is not None and self.finished < time - SKEW

    @property
    def disruption_since(self) -> datetime | None:
        """Since when the pod's DisruptionTarget condition is as it is."""
        return self.pod.disruption.since if self.pod.disruption is not None else None

    @property
    def node_text(self) -> str:
        """The node, in a sentence."""
        return f"node {self.pod.node}" if self.pod.node else "its node"

    def ago(self, time: datetime | None) -> timedelta:
        """How long ago that was; never negative, since clocks of machines differ."""
        return max(self.now - time, timedelta(0)) if time is not None else timedelta(0)

    def seen_for(self, what: str) -> timedelta:
        """How long this can be seen already."""
        return self.ago(self.since.get(what))
