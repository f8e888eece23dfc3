"""Everything known about one worker at one moment, as input for `ends` and `facts`.

Layer: worlds/kubernetes; pure, no clock of its own. Things without a time of their own (taints,
failed pulls) count from when this operator first saw them. If one disappears and returns, it is new
again. After a restart of the operator everything is new: timeouts that depend on it start again,
and none becomes shorter.
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
"""An agent whose last heartbeat is younger is alive, whatever the API server shows of its node:
agents call at least every 10 s."""
SKEW = timedelta(seconds=3)
"""Most by which a node's clock may differ from the API server's, with times cut to seconds."""
PLACED = "placed"
"""The sighting that begins when the worker is first seen on its node."""
RUNS = "runs"
"""The sighting that begins when the training container is first seen running."""
NODE_GONE = "node gone"
"""The sighting that begins when the node's object is first missed."""
SIGKILLED, SIGTERMED = 137, 143
"""Exit codes of a container that the kubelet, or another process, ended by a signal."""
ENDS = "ends"
"""The sighting that begins when the training container is first seen to have ended that way."""
SETTLING = timedelta(seconds=5)
"""Time for the kubelet to say why, at the end of the pod; other containers may still run in it."""


class LastSeenTimes:
    """When things were first seen of the workers of one run, by the uid of their pods."""

    def __init__(self) -> None:
        self._first: dict[str, dict[str, datetime]] = {}

    def since(self, subject: str, what: str) -> datetime | None:
        """Since when this is visible, as of the last update; None if it is not."""
        return self._first.get(subject, {}).get(what)

    def update(self, subject: str, present: Iterable[str], now: datetime) -> Mapping[str, datetime]:
        """Record what is visible of the subject now; returns since when each thing is visible."""
        before = self._first.get(subject, {})
        seen = self._first[subject] = {what: before.get(what, now) for what in present}
        return seen

    def keep(self, subjects: Collection[str]) -> None:
        """Forget all other subjects: their pods are gone."""
        for gone in self._first.keys() - set(subjects):
            del self._first[gone]


def is_ending(pod: PodFact, training: str) -> bool:
    """Whether a signal ended its container, and the end of the pod, which shows why, is pending."""
    container = pod.container(training)
    if container is None or pod.phase in ENDED or pod.deletion is not None:
        return False
    signalled = container.exit_code in (SIGKILLED, SIGTERMED)
    return container.state == "Terminated" and signalled and container.reason != "OOMKilled"


def phase_of(pod: PodFact, training: str) -> WorkerPhase:
    """The phase by the training container: sidecars may run after its end."""
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
    """None: the pod is not placed, or the operator may not read nodes."""
    contact: AgentContact
    training: str
    """Name of the training container."""
    now: datetime
    since: Mapping[str, datetime]
    """Sightings: str(taint), PLACED, RUNS, NODE_GONE, stages of a Pending pod."""
    notices: Sequence[NoticeTaint]

    @cached_property
    def container(self) -> ContainerFact | None:
        """The training container; None until the kubelet reports it."""
        return self.pod.container(self.training)

    @cached_property
    def phase(self) -> WorkerPhase:
        """See phase_of; a worker that is ending still counts as Running."""
        if is_ending(self.pod, self.training) and self.seen_for(ENDS) < SETTLING:
            return "Running"
        return phase_of(self.pod, self.training)

    @property
    def answers(self) -> bool:
        """Whether its agent sent a heartbeat in the last ANSWERS."""
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
        """Whether the worker ended by itself before this time, when its pod was taken away."""
        return time is not None and self.finished is not None and self.finished < time - SKEW

    @property
    def disruption_since(self) -> datetime | None:
        """When the pod's DisruptionTarget condition last changed."""
        return self.pod.disruption.since if self.pod.disruption is not None else None

    @property
    def node_text(self) -> str:
        """The node, in a sentence."""
        return f"node {self.pod.node}" if self.pod.node else "its node"

    def ago(self, time: datetime | None) -> timedelta:
        """How long ago that was; 0 for a time in the future (clock skew) or None."""
        return max(self.now - time, timedelta(0)) if time is not None else timedelta(0)

    def seen_for(self, what: str) -> timedelta:
        """How long this has been visible."""
        return self.ago(self.since.get(what))
