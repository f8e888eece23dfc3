"""From a pod, its node and what its agent said to what the core may know of a worker.

Layer: worlds/kubernetes; pure. Total: whatever mixture of states the API server shows, there is a
fact, and nothing here decides what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from trainrun_operator.core.run.observation import Pending, WorkerFact
from trainrun_operator.worlds.base import Heard
from trainrun_operator.worlds.kubernetes.observing.ends import failed_beside, loss_of
from trainrun_operator.worlds.kubernetes.observing.nodes import NodeFact
from trainrun_operator.worlds.kubernetes.observing.notices import notice_of
from trainrun_operator.worlds.kubernetes.observing.pending import PodPending, pending_of
from trainrun_operator.worlds.kubernetes.observing.pods import ENDED, PodFact
from trainrun_operator.worlds.kubernetes.observing.scene import (
    ENDS,
    NODE_GONE,
    PLACED,
    RUNS,
    Scene,
    is_ending,
    phase_of,
)
from trainrun_operator.worlds.kubernetes.observing.sightings import Sightings
from trainrun_operator.worlds.kubernetes.observing.taints import DEFAULT_NOTICES, NoticeTaint


def worker_fact(
    pod: PodFact,
    node: NodeFact | None,
    heard: Heard,
    *,
    training_container: str,
    now: datetime,
    node_lease_age: timedelta | None = None,
    notices: Sequence[NoticeTaint] = DEFAULT_NOTICES,
    sightings: Sightings | None = None,
) -> WorkerFact:
    """The fact about one worker.

    `node` is None where the pod is not placed or nodes may not be looked at; `training_container`
    is what the template calls it now, for a pod that does not say; `node_lease_age` is the age of
    a node's Lease that has missed renewals, None while it is fresh; `sightings` remembers since
    when things were seen that carry no time (without it, since now).
    """
    # A template that is being changed may call it otherwise than the pods that still run.
    training = pod.training or training_container
    phase = phase_of(pod, training)
    memory = sightings if sightings is not None else Sightings()
    placed = memory.since(pod.uid, PLACED) or now
    why = pending_of(pod, placed_for=now - placed) if phase == "Pending" else None
    since = memory.update(pod.uid, _visible(pod, node, training, why), now)
    scene = Scene(
        pod=pod,
        node=node,
        heard=heard,
        training=training,
        now=now,
        since=since,
        notices=notices,
    )
    notice = notice_of(scene)
    loss = loss_of(scene, noticed=notice is not None)
    return WorkerFact(
        name=pod.name,
        slot=pod.slot,
        created_for=pod.creation,
        template_hash=pod.template_hash,
        storage=pod.storage,
        phase=scene.phase,
        deleting=pod.deletion is not None,
        node=pod.node,
        avoids=pod.avoids,
        age=scene.ago(pod.created),
        running_for=scene.seen_for(RUNS) if scene.phase == "Running" else None,
        exit_code=scene.container.exit_code if scene.container is not None else None,
        holds_room=scene.phase == "Ended" and _holds_room(pod, training),
        failed_beside=failed_beside(scene),
        loss=loss,
        pending=_pending(scene, why) if why is not None and pod.deletion is None else None,
        suspect_node=_suspicion(scene, node_lease_age),
        notice=notice,
        agent=heard.state,
        silent_for=heard.silent_for,
        unreadable=heard.unreadable,
    )


def _holds_room(pod: PodFact, training: str) -> bool:
    """Another container runs on. The kubelet calls a pod Running a moment longer than its last
    container, and ends native sidecars by itself."""
    others = (it for it in pod.containers if it.name != training and not it.init)
    return pod.phase not in ENDED and any(it.state == "Running" for it in others)


def _visible(
    pod: PodFact, node: NodeFact | None, training: str, why: PodPending | None
) -> Iterator[str]:
    """What carries no time of its own, or one of another machine's clock."""
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


def _pending(scene: Scene, why: PodPending) -> Pending:
    return Pending(kind=why.kind, message=why.message, since=scene.seen_for(why.stage))


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
