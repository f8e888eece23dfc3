"""The fact about a worker, from its pod, its node and the state of its agent.

Layer: worlds/kubernetes; pure. Total: every mixture of states that the API server shows gives a
fact, and nothing here decides what follows from it. Why a pod has not started (no room, no image, a
missing secret, or still starting) is given in the words of scheduler and kubelet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainrun_operator.core.run.boundary import Pending, PendingKind, WorkerFact
from trainrun_operator.worlds.base import AgentContact
from trainrun_operator.worlds.kubernetes.observing.ends import container_failure, loss_of, notice_of
from trainrun_operator.worlds.kubernetes.observing.nodes import (
    DEFAULT_NOTICES,
    NodeFact,
    NoticeTaint,
)
from trainrun_operator.worlds.kubernetes.observing.pods import ENDED, ContainerFact, PodFact
from trainrun_operator.worlds.kubernetes.observing.worker_observation import (
    ENDS,
    NODE_GONE,
    PLACED,
    RUNS,
    LastSeenTimes,
    WorkerObservation,
    is_ending,
    phase_of,
)

IMAGE_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
CONFIG_REASONS = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",  # of a sidecar: the kubelet never restarts workers themselves
)

MOUNT_PATIENCE = timedelta(seconds=60)
"""A secret or config map that is missing as a volume shows only in the pod's events, which the
operator does not read. If volumes and network are not ready after this time, it assumes that."""


GATED: PendingKind = "SchedulingGated"
KUEUE = "kueue.x-k8s.io/admission"
"""The scheduling gate by which Kueue holds back pods whose owner it does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPending:
    """Why a Pending pod has not started."""

    kind: PendingKind
    message: str
    stage: str
    """The sighting from which its time counts: a slow pull that fails at last has not failed all
    along, and a pod whose gates were removed has not looked for room before."""


def pending_of(pod: PodFact, *, placed_for: timedelta) -> PodPending:
    """Why it has not started; `placed_for`: the time since it was seen on its node."""
    if not pod.node:
        return _unplaced(pod)
    for container in pod.containers:
        kind = _trouble(container)
        if kind is not None:
            detail = f": {container.message}" if container.message else ""
            message = f"container {container.name}: {container.reason}{detail}"
            return PodPending(kind=kind, message=message, stage=kind)
    if pod.sandbox is not None and pod.sandbox.status == "False" and placed_for > MOUNT_PATIENCE:
        message = (
            f"volumes or network of the pod are not ready on node {pod.node}; often a secret, a "
            f"config map or a volume is missing: see kubectl describe pod {pod.name}"
        )
        return PodPending(kind="ConfigError", message=message, stage="ConfigError")
    return PodPending(kind="Starting", message=_progress(pod), stage="Starting")


def held_back(pod: PodFact) -> str:
    """Which scheduling gates hold the pod back, and what to do; empty: none."""
    if KUEUE in pod.gates:
        return (
            f"the scheduling gate {KUEUE} holds it back: Kueue queues each pod by itself. Name "
            "TrainRun.v1alpha1.trainrun.dev and TrainSweep.v1alpha1.trainrun.dev in Kueue's "
            "integrations.externalFrameworks, and set the chart's value kueue.enabled"
        )
    gates = ", ".join(pod.gates)
    return f"it waits for its scheduling gates to be removed: {gates}" if gates else ""


def _unplaced(pod: PodFact) -> PodPending:
    scheduled = pod.scheduled
    if why := held_back(pod):
        return PodPending(kind=GATED, message=why, stage=GATED)
    if scheduled is None or scheduled.status != "False":
        named = pod.scheduler not in ("", "default-scheduler")
        who = f" {pod.scheduler} (schedulerName in workers.template; does it run?)" if named else ""
        message = f"the scheduler{who} has not looked at the pod yet"
        kind: PendingKind = "Unschedulable" if named else "Starting"
        return PodPending(kind=kind, message=message, stage="Scheduling")
    message = scheduled.message or scheduled.reason or "no node fits"
    return PodPending(
        kind="Unschedulable", message=message, stage=scheduled.reason or "Unschedulable"
    )


def _trouble(container: ContainerFact) -> PendingKind | None:
    if container.state != "Waiting":
        return None
    if container.reason in IMAGE_REASONS:
        return "ImagePull"
    return "ConfigError" if container.reason in CONFIG_REASONS else None


def _progress(pod: PodFact) -> str:
    running = next((c for c in pod.containers if c.init and c.state == "Running"), None)
    if running is not None:
        return f"init container {running.name} runs on node {pod.node}"
    return f"its containers are being started on node {pod.node}"


def worker_fact(
    pod: PodFact,
    node: NodeFact | None,
    contact: AgentContact,
    *,
    training_container: str,
    now: datetime,
    node_lease_age: timedelta | None = None,
    notices: Sequence[NoticeTaint] = DEFAULT_NOTICES,
    sightings: LastSeenTimes | None = None,
) -> WorkerFact:
    """The fact about one worker.

    `node` is None where the pod is not placed, or the operator may not read nodes;
    `training_container` is its name in the current template, for a pod that does not give it;
    `node_lease_age` is the age of a node's Lease that missed renewals, None while it is fresh;
    `sightings` keeps when things without a time of their own were first seen (default: now).
    """
    # An edited template may use another name than the pods that still run.
    training = pod.training or training_container
    phase = phase_of(pod, training)
    memory = sightings if sightings is not None else LastSeenTimes()
    placed = memory.since(pod.uid, PLACED) or now
    why = pending_of(pod, placed_for=now - placed) if phase == "Pending" else None
    since = memory.update(pod.uid, _visible(pod, node, training, why), now)
    observed = WorkerObservation(
        pod=pod,
        node=node,
        contact=contact,
        training=training,
        now=now,
        since=since,
        notices=notices,
    )
    notice = notice_of(observed)
    loss = loss_of(observed, noticed=notice is not None)
    return WorkerFact(
        name=pod.name,
        slot=pod.slot,
        created_for=pod.creation,
        template_hash=pod.template_hash,
        storage=pod.storage,
        phase=observed.phase,
        deleting=pod.deletion is not None,
        node=pod.node,
        avoids=pod.avoids,
        age=observed.ago(pod.created),
        running_for=observed.seen_for(RUNS) if observed.phase == "Running" else None,
        exit_code=observed.container.exit_code if observed.container is not None else None,
        holds_room=observed.phase == "Ended" and _holds_room(pod, training),
        container_failure=container_failure(observed),
        loss=loss,
        pending=_pending(observed, why) if why is not None and pod.deletion is None else None,
        suspect_node=_suspicion(observed, node_lease_age),
        notice=notice,
        agent=contact.state,
        silent_for=contact.silent_for,
        unreadable=contact.unreadable,
    )


def _holds_room(pod: PodFact, training: str) -> bool:
    """Whether another container still runs. A pod stays Running slightly longer than its last
    container, and the kubelet ends native sidecars by itself."""
    others = (
        container
        for container in pod.containers
        if container.name != training and not container.init
    )
    return pod.phase not in ENDED and any(container.state == "Running" for container in others)


def _visible(
    pod: PodFact, node: NodeFact | None, training: str, why: PodPending | None
) -> Iterator[str]:
    """What can be seen now without a time, or with a time of another machine's clock."""
    if why is not None:
        yield why.stage
    ending = is_ending(pod, training)
    if ending or phase_of(pod, training) == "Running":
        yield RUNS
    if ending:
        yield ENDS
    if pod.node:
        yield PLACED
    if node is not None:
        yield from map(str, node.taints)
        if node.deleted:
            yield NODE_GONE


def _pending(observed: WorkerObservation, why: PodPending) -> Pending:
    return Pending(kind=why.kind, message=why.message, since=observed.seen_for(why.stage))


def _suspicion(observed: WorkerObservation, lease_age: timedelta | None) -> str:
    """Why the node may be lost; "": no sign. The silence of the agent decides whether it is."""
    node = observed.node
    if node is not None and node.deleted:
        return f"{observed.node_text} was deleted"
    if node is not None and node.ready != "True":
        detail = node.ready_message or node.ready_reason
        return f"{observed.node_text} is NotReady" + (f": {detail}" if detail else "")
    if lease_age is not None:
        return f"the kubelet of {observed.node_text} does not renew its Lease"
    return ""
