"""Notices: who has announced that a worker will be taken away, and when.

Layer: worlds/kubernetes; pure. The most certain one is told: what was decided about the pod comes
before what is announced about its node.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from trainrun.contract.agent_state import Notice
from trainrun_operator.worlds.kubernetes.observing.nodes import NodeFact
from trainrun_operator.worlds.kubernetes.observing.scene import NODE_GONE, PLACED, Scene
from trainrun_operator.worlds.kubernetes.observing.taints import (
    LIFE_CYCLE,
    NO_EXECUTE,
    SWITCHED_OFF,
    Taint,
    announced,
    patience,
)

GARBAGE_COLLECTION = timedelta(seconds=40)
"""From the deletion of a node's object to that of its pods, by the pod garbage collector."""

DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by the scheduler",
    "EvictionByEvictionAPI": "evicted",
    "DeletionByTaintManager": "evicted for a taint of its node",
    "DeletionByPodGC": "deleted with its node",
    "TerminationByKubelet": "ended by its node",
}
"""Reasons of the condition DisruptionTarget, in words."""


def disruption_text(scene: Scene) -> str:
    """What the pod's DisruptionTarget condition says."""
    disruption, reason = scene.pod.disruption, scene.disrupted_by
    detail = disruption.message if disruption is not None else ""
    text = DISRUPTIONS.get(reason, reason)
    return f"{text}: {detail}" if detail else text


def notice_of(scene: Scene) -> Notice | None:
    """The notice that the worker stands under."""
    return _of_pod(scene) or (of_node(scene) if scene.phase != "Ended" else None)


def _of_pod(scene: Scene) -> Notice | None:
    pod, reason = scene.pod, scene.disrupted_by
    if reason and not _only_unreachable(scene, reason):
        since = scene.disruption_since
        if scene.ended_before(since):
            return None
        return _ending(scene, disruption_text(scene), scene.ago(since))
    if reason or pod.deletion is None:
        return None
    asked = pod.deletion - timedelta(seconds=pod.grace or 0)
    if scene.ended_before(asked):
        return None
    return _ending(scene, "pod was deleted", scene.ago(asked))


def _ending(scene: Scene, text: str, age: timedelta) -> Notice:
    deletion = scene.pod.deletion
    if deletion is None:
        return _notice(text, age, None)
    if deletion > scene.now or not scene.answers or scene.phase != "Running":
        return _notice(text, age, deletion - scene.now)
    # Its kubelet was cut off and learns of the deletion late: the whole grace begins only then, and
    # the agent hears of it by SIGTERM.
    own = scene.heard.state.notice if scene.heard.state is not None else None
    return Notice(reason=text) if own is None else replace(own, reason=text)


def _only_unreachable(scene: Scene, reason: str) -> bool:
    """The node does not answer, so nobody carries the eviction out: silence decides."""
    node = scene.node
    return reason == "DeletionByTaintManager" and node is not None and node.ready != "True"


def of_node(scene: Scene) -> Notice | None:
    """What is announced about its node; it explains a SIGTERM, also once the worker has ended."""
    node = scene.node
    if node is None:
        return None
    if node.deleted:
        age = scene.seen_for(NODE_GONE)
        left = max(GARBAGE_COLLECTION - age, timedelta(0))
        return _notice(f"node {node.name} was deleted", age, left)
    if node.deletion is not None:
        return _notice(f"node {node.name} is being deleted", scene.ago(node.deletion), None)
    fresh = [taint for taint in node.taints if not _accepted(scene, taint)]
    found = announced(fresh, scene.notices)
    if found is not None:
        taint, notice = found
        age = _age(scene, taint)
        text = f"node {node.name} {notice.means}, says its taint {taint}"
        promised = None if notice.seconds is None else timedelta(seconds=notice.seconds) - age
        return _notice(text, age, promised)
    return _by_no_execute(scene, node)


def _accepted(scene: Scene, taint: Taint) -> bool:
    """The pod tolerates the taint and was placed there in spite of it: it is no news."""
    tolerated = any(toleration.tolerates(taint) for toleration in scene.pod.tolerations)
    return tolerated and scene.seen_for(str(taint)) >= scene.seen_for(PLACED)


def _by_no_execute(scene: Scene, node: NodeFact) -> Notice | None:
    """Another taint that the taint manager will evict the pod for, with the pod's own grace."""
    grace = timedelta(seconds=scene.pod.usual_grace)
    ends = []
    for taint in node.taints:
        if taint.effect != NO_EXECUTE or taint.key in (*LIFE_CYCLE, *SWITCHED_OFF):
            continue
        allowed = patience(taint, scene.pod.tolerations)
        if allowed is not None:
            age = _age(scene, taint)
            ends.append((timedelta(seconds=allowed) + grace - age, str(taint), age))
    if not ends:
        return None
    soonest, text, age = min(ends)
    return _notice(f"node {node.name} has the taint {text}", age, soonest)


def _age(scene: Scene, taint: Taint) -> timedelta:
    return scene.ago(taint.added) if taint.added is not None else scene.seen_for(str(taint))


def _notice(reason: str, age: timedelta, left: timedelta | None) -> Notice:
    remaining = None if left is None else max(left.total_seconds(), 0.0)
    return Notice(reason=reason, age=age.total_seconds(), remaining=remaining)
