"""From a pod, its node and what its agent said to what the core may know of a worker.

Layer: worlds/kubernetes; pure. Total: whatever mixture of states the API server shows, there is a
fact, and nothing here decides what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from trainrun_operator.core.causes import Cause
from trainrun_operator.core.observation import Waiting, WorkerFact, WorkerLoss, WorkerPhase
from trainrun_operator.worlds.base import Heard
from trainrun_operator.worlds.kubernetes.ends import loss_of
from trainrun_operator.worlds.kubernetes.nodes import NodeFact
from trainrun_operator.worlds.kubernetes.notices import notice_of
from trainrun_operator.worlds.kubernetes.pods import PodFact
from trainrun_operator.worlds.kubernetes.scene import NODE_GONE, PLACED, RUNS, Scene, phase_of
from trainrun_operator.worlds.kubernetes.sightings import Sightings
from trainrun_operator.worlds.kubernetes.taints import DEFAULT_NOTICES, NoticeTaint
from trainrun_operator.worlds.kubernetes.waits import Wait, wait_of


def worker_fact(
    pod: PodFact,
    node: NodeFact | None,
    heard: Heard,
    *,
    training_container: str,
    ours: bool,
    now: datetime,
    node_lease_age: timedelta | None = None,
    notices: Sequence[NoticeTaint] = DEFAULT_NOTICES,
    sightings: Sightings | None = None,
    dismissed: bool = False,
) -> WorkerFact:
    """The fact about one worker.

    `node` is None where the pod is not placed or nodes may not be looked at; `training_container`
    is what the template calls it now, for a pod that does not say; `ours`: the pod bears a valid
    seal; `node_lease_age` is the age of a node's Lease that has missed renewals, None while
    it is fresh; `sightings` remembers since when things were seen that carry no time (without it,
    since now); `dismissed`: we have deleted the pod ourselves, so that its deletion is no notice.
    """
    if not ours:
        return _stranger(pod, training_container, now)
    # A template that is being changed may call it otherwise than the pods that still run.
    training = pod.training or training_container
    phase = phase_of(pod, training)
    memory = sightings if sightings is not None else Sightings()
    placed = memory.since(pod.uid, PLACED) or now
    wait = wait_of(pod, placed_for=now - placed) if phase == "Pending" else None
    since = memory.update(pod.uid, _visible(pod, node, phase, wait), now)
    scene = Scene(
        pod=pod,
        node=node,
        heard=heard,
        training=training,
        now=now,
        since=since,
        notices=notices,
        dismissed=dismissed,
    )
    notice = notice_of(scene)
    loss = loss_of(scene, noticed=notice is not None)
    return WorkerFact(
        name=pod.name,
        slot=pod.slot,
        created_for=pod.creation,
        template_hash=pod.template_hash,
        phase=phase,
        deleting=pod.deletion is not None,
        node=pod.node,
        avoids=pod.avoids,
        age=scene.ago(pod.created),
        running_for=scene.seen_for(RUNS) if phase == "Running" else None,
        exit_code=scene.container.exit_code if scene.container is not None else None,
        loss=loss,
        waiting=_waiting(scene, wait) if wait is not None and pod.deletion is None else None,
        suspect_node=_suspicion(scene, node_lease_age),
        notice=notice,
        agent=heard.state,
        silent_for=heard.silent_for,
    )


def _visible(
    pod: PodFact, node: NodeFact | None, phase: WorkerPhase, wait: Wait | None
) -> Iterator[str]:
    """What carries no time of its own, or one of another machine's clock."""
    if wait is not None:
        yield wait.stage
    if phase == "Running":
        yield RUNS
    if pod.node:
        yield PLACED
    if node is not None:
        yield from map(str, node.taints)
        if node.deleted:
            yield NODE_GONE


def _waiting(scene: Scene, wait: Wait) -> Waiting:
    return Waiting(kind=wait.kind, message=wait.message, since=scene.seen_for(wait.stage))


def _suspicion(scene: Scene, lease_age: timedelta | None) -> str:
    """Why the node may be gone; whether it is, the silence of the agent decides."""
    node = scene.node
    if node is not None and node.deleted:
        return f"{scene.node_text} was deleted"
    if node is not None and node.ready != "True":
        detail = node.ready_message or node.ready_reason
        return f"{scene.node_text} is NotReady" + (f": {detail}" if detail else "")
    if lease_age is not None:
        return f"the kubelet of {scene.node_text} does not renew its Lease"
    return ""


def _stranger(pod: PodFact, training_container: str, now: datetime) -> WorkerFact:
    """A pod with the labels of a worker that no operator of this installation has created.

    Its name is taken, so it is told; it is never heard, and left alone.
    """
    message = (
        f"pod {pod.name} bears the labels of a worker and was not created by this operator; "
        "delete it"
    )
    container = pod.container(training_container)
    return WorkerFact(
        name=pod.name,
        slot=pod.slot,
        created_for=pod.creation,
        template_hash=pod.template_hash,
        phase="Ended",
        deleting=pod.deletion is not None,
        node=pod.node,
        age=max(now - pod.created, timedelta(0)),
        exit_code=container.exit_code if container is not None else None,
        loss=WorkerLoss(cause=Cause.UNKNOWN, message=message),
    )
