"""Containers beside the one that trains: whether one of them has ended with an error.

Layer: worlds/kubernetes; pure. Nothing is decided by it: the training may do without a log shipper.
But a program that somebody took for the training must not die without a word.
"""

from __future__ import annotations

from trainrun_operator.worlds.kubernetes.observing.ends import lost_with_node
from trainrun_operator.worlds.kubernetes.observing.pods import ContainerFact
from trainrun_operator.worlds.kubernetes.observing.scene import Scene, phase_of


def failed_beside(scene: Scene) -> str:
    """The first container that has ended with another exit code than 0, and where to look; "" where
    none has. Whoever takes the pod away ends all of its containers: that is no error of theirs."""
    pod = scene.pod
    if pod.deletion is not None or pod.reason or scene.disrupted_by:
        return ""
    # An init container that fails before it is a loss; after it the kubelet ends sidecars.
    trains = phase_of(scene.pod, scene.training) == "Running"
    others = (c for c in pod.containers if c.name != scene.training and (trains or not c.init))
    return next(filter(None, (_failed(it, pod.name) for it in others)), "")


def _failed(container: ContainerFact, pod: str) -> str:
    now = container.state == "Terminated"
    code = container.exit_code if now else container.code_before
    reason = container.reason if now else container.ended_before
    if not code or lost_with_node(reason, code):
        return ""
    why = f" ({reason})" if reason not in ("", "Error") else ""
    again = "" if now else f" and was restarted, {container.restarts} times so far"
    return (
        f"container {container.name} of worker {pod} ended with exit code {code}{why}{again}; see "
        f"kubectl logs {pod} -c {container.name}{'' if now else ' --previous'}"
    )
