"""Notices and losses: why a worker will end, has ended, or will send no heartbeat again.

Layer: worlds/kubernetes; pure. Of several notices the most certain one counts: a decision about the
pod comes before an announcement about its node. Losses contain only what the API server knows, not
what the agent reports about its processes: the cluster's knowledge of pod and node explains more,
and the core gives it precedence. Where the cluster knows only an exit code, there is no loss: the
agent knows better. The failure of a container next to the training is reported, but decides
nothing: the training may work without a log shipper. But if a user takes such a program for the
training, its death must not go unnoticed.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from trainrun.contract.agent_state import Notice
from trainrun_operator.api.run.status_parts import Cause
from trainrun_operator.core.run.boundary import WorkerLoss
from trainrun_operator.worlds.kubernetes.observing.nodes import (
    LIFE_CYCLE,
    NO_EXECUTE,
    SWITCHED_OFF,
    NodeFact,
    Taint,
    announced,
    patience,
)
from trainrun_operator.worlds.kubernetes.observing.pods import ContainerFact, PodFact
from trainrun_operator.worlds.kubernetes.observing.worker_observation import (
    NODE_GONE,
    PLACED,
    SIGKILLED,
    SIGTERMED,
    WorkerObservation,
    phase_of,
)

GARBAGE_COLLECTION = timedelta(seconds=40)
"""Time from the deletion of a node's object until the pod garbage collector deletes its pods."""

DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by the scheduler",
    "EvictionByEvictionAPI": "evicted",
    "DeletionByTaintManager": "evicted for a taint of its node",
    "DeletionByPodGC": "deleted with its node",
    "TerminationByKubelet": "ended by its node",
}
"""Reasons of the condition DisruptionTarget, in words."""
SETTLING = timedelta(seconds=15)
"""How long a pod is left on a switched-off node where it was just placed: a template that tolerates
every taint is repeatedly placed there, and must not be replaced in a tight loop."""
NODE_CAME_BACK = 255
"""Exit code of containers that a kubelet finds dead after its node was restarted."""
OWN_LIMITS = (
    "exceeds the total limit of containers",
    "exceeded its local ephemeral storage limit",
    "exceeds the limit",
)
"""Texts of the kubelet when it evicts a pod for the pod's own use of disk."""


def disruption_text(scene: WorkerObservation) -> str:
    """The pod's DisruptionTarget condition, in words."""
    disruption, reason = scene.pod.disruption, scene.disrupted_by
    detail = disruption.message if disruption is not None else ""
    text = DISRUPTIONS.get(reason, reason)
    return f"{text}: {detail}" if detail else text


def notice_of(scene: WorkerObservation) -> Notice | None:
    """The notice that the worker has; None: none."""
    return _of_pod(scene) or (of_node(scene) if scene.phase != "Ended" else None)


def _of_pod(scene: WorkerObservation) -> Notice | None:
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


def _ending(scene: WorkerObservation, text: str, age: timedelta) -> Notice:
    deletion = scene.pod.deletion
    if deletion is None:
        return _notice(text, age, None)
    if deletion > scene.now or not scene.answers or scene.phase != "Running":
        return _notice(text, age, deletion - scene.now)
    # Its kubelet was cut off and learns of the deletion late: the whole grace begins only then, and
    # the agent gets SIGTERM.
    own = scene.contact.state.notice if scene.contact.state is not None else None
    return Notice(reason=text) if own is None else replace(own, reason=text)


def _only_unreachable(scene: WorkerObservation, reason: str) -> bool:
    """Whether the node does not answer, so no kubelet carries out the eviction: silence decides."""
    node = scene.node
    return reason == "DeletionByTaintManager" and node is not None and node.ready != "True"


def of_node(scene: WorkerObservation) -> Notice | None:
    """The notice about its node; it explains a SIGTERM, also once the worker has ended."""
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
        text = f"node {node.name} {notice.means} (taint {taint})"
        promised = None if notice.seconds is None else timedelta(seconds=notice.seconds) - age
        return _notice(text, age, promised)
    return _by_no_execute(scene, node)


def _accepted(scene: WorkerObservation, taint: Taint) -> bool:
    """Whether the pod tolerates the taint and was placed in spite of it: then it is no notice."""
    tolerated = any(toleration.tolerates(taint) for toleration in scene.pod.tolerations)
    return tolerated and scene.seen_for(str(taint)) >= scene.seen_for(PLACED)


def _by_no_execute(scene: WorkerObservation, node: NodeFact) -> Notice | None:
    """The notice for another taint, for which the taint manager evicts with the pod's own grace."""
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


def _age(scene: WorkerObservation, taint: Taint) -> timedelta:
    return scene.ago(taint.added) if taint.added is not None else scene.seen_for(str(taint))


def _notice(reason: str, age: timedelta, left: timedelta | None) -> Notice:
    remaining = None if left is None else max(left.total_seconds(), 0.0)
    return Notice(reason=reason, age=age.total_seconds(), remaining=remaining)


def loss_of(scene: WorkerObservation, *, noticed: bool) -> WorkerLoss | None:
    """Why the worker was lost, None if it was not; `noticed`: it had a notice."""
    if scene.phase != "Ended":
        return _node_lost(scene)
    return (
        _disrupted(scene)
        or _refused(scene)
        or _terminated(scene, noticed=noticed)
        or _never_started(scene)
        or _node_lost(scene)
    )


# ------------------------------------------------------------------------------------- the node


def _node_lost(scene: WorkerObservation) -> WorkerLoss | None:
    node, container = scene.node, scene.container
    if container is not None and container.state == "Terminated":
        return None  # it had ended before, for another reason
    if scene.disrupted_by == "DeletionByPodGC":
        return _gone(scene, scene.ago(scene.disruption_since))
    if node is None or (scene.phase == "Pending" and scene.seen_for(PLACED) < SETTLING):
        return None
    off = next((taint for taint in node.taints if taint.key in SWITCHED_OFF), None)
    if off is not None:
        message = f"{scene.node_text} is switched off (taint {off})"
        return WorkerLoss(
            cause=Cause.NODE_LOST, message=message, age=_age(scene, off), unreachable=True
        )
    if node.deleted and not scene.answers:
        return _gone(scene, scene.seen_for(NODE_GONE))
    return None


def _gone(scene: WorkerObservation, age: timedelta) -> WorkerLoss:
    """The loss of a node without an object: no kubelet is left to confirm the end of the pod."""
    cause, message = Cause.NODE_LOST, f"{scene.node_text} is gone: its object was deleted"
    if scene.node is not None and scene.node.unschedulable:  # cordoned before: on purpose
        cause, message = Cause.PREEMPTED, f"{scene.node_text} was cordoned and removed"
    return WorkerLoss(cause=cause, message=message, age=age, unreachable=True)


# -------------------------------------------------------------------------- decided from outside


def _disrupted(scene: WorkerObservation) -> WorkerLoss | None:
    reason = scene.disrupted_by
    if not reason and scene.pod.reason != "Evicted":
        return None
    if scene.ended_before(scene.disruption_since):
        return None  # a drain or a taint removes ended pods, too
    if reason == "DeletionByPodGC":
        return _gone(scene, scene.ago(scene.disruption_since))
    if reason in ("TerminationByKubelet", ""):
        return _ended_by_kubelet(scene)
    message = f"worker {scene.pod.name} was {disruption_text(scene)}"
    age = scene.ago(scene.disruption_since)
    return WorkerLoss(cause=Cause.PREEMPTED, message=message, age=age)


def _ended_by_kubelet(scene: WorkerObservation) -> WorkerLoss:
    pod, disruption = scene.pod, scene.pod.disruption
    detail = pod.message or (disruption.message if disruption is not None else "")
    cause = Cause.PREEMPTED
    if "shutdown" in detail:
        message = f"{scene.node_text} shuts down: {detail}"
    elif pod.reason == "Preempting":
        message = f"worker {pod.name} made room for a critical pod on {scene.node_text}"
    else:
        why = detail or "no reason given"
        message = f"worker {pod.name} was evicted by {scene.node_text}: {why}"
        # Its own use of disk will repeat: charged like any other failure of the training.
        own = any(text in detail for text in OWN_LIMITS)
        cause = Cause.TERMINATED if own else Cause.EVICTED
    return WorkerLoss(cause=cause, message=message, age=scene.ago(scene.disruption_since))


def _refused(scene: WorkerObservation) -> WorkerLoss | None:
    """The loss if the kubelet refused the pod (device, memory, labels), or gave it up."""
    pod, container = scene.pod, scene.container
    if pod.phase != "Failed" or not pod.reason:
        return None
    detail = f": {pod.message}" if pod.message else ""
    if pod.reason == "DeadlineExceeded":
        message = f"worker {pod.name} reached activeDeadlineSeconds of its pod template{detail}"
        return WorkerLoss(cause=Cause.TERMINATED, message=message)
    message = f"{scene.node_text} refused worker {pod.name} ({pod.reason}){detail}"
    if scene.contact.state is None and (container is None or container.state == "Waiting"):
        return WorkerLoss(cause=Cause.START_FAILED, message=message)
    # It ran already: a restarted node admits its pods again, and may lack its GPUs.
    return WorkerLoss(cause=Cause.NODE_LOST, message=message)


# --------------------------------------------------------------------------------- its containers


def _terminated(scene: WorkerObservation, *, noticed: bool) -> WorkerLoss | None:
    pod, ended = scene.pod, scene.container
    if ended is None or ended.state != "Terminated":
        return None
    age = scene.ago(ended.finished)
    if ended.reason == "OOMKilled" and ended.exit_code == SIGKILLED:
        message = f"worker {pod.name} was killed by the kernel: out of memory"
        return WorkerLoss(
            cause=Cause.OUT_OF_MEMORY,
            message=message,
            age=age,
            container=ended.name,
            exit_code=SIGKILLED,
        )
    if lost_with_node(ended.reason, ended.exit_code):
        message = f"{scene.node_text} was restarted or lost its containers ({ended.reason})"
        return WorkerLoss(cause=Cause.NODE_LOST, message=message, age=age)
    if ended.reason in ("StartError", "ContainerCannotRun"):
        message = f"worker {pod.name} cannot start: {ended.message or ended.reason}"
        return WorkerLoss(cause=Cause.START_FAILED, message=message, age=age, container=ended.name)
    if not noticed and _got_sigterm(scene, ended.exit_code):
        node = of_node(scene)
        why = _from_inside(pod) if node is None else f": {node.reason}"
        cause = Cause.TERMINATED if node is None else Cause.PREEMPTED
        return WorkerLoss(cause=cause, message=f"worker {pod.name} got SIGTERM{why}", age=age)
    if scene.contact.state is None and ended.exit_code and not noticed:
        words = ended.message or "it left no message, and its agent sent no heartbeat"
        message = f"worker {pod.name} ended with exit code {ended.exit_code}: {words}"
        return WorkerLoss(cause=Cause.UNKNOWN, message=message, age=age, container=ended.name)
    return None


def _got_sigterm(scene: WorkerObservation, exit_code: int | None) -> bool:
    """Whether its agent got SIGTERM: it then exits with this code, unless it is killed before."""
    state = scene.contact.state
    return exit_code == SIGTERMED or (state is not None and state.notice is not None)


def _from_inside(pod: PodFact) -> str:
    likely = f"its {pod.probes} has failed" if pod.probes else "a process in it sent the signal"
    return f" and was not taken away: most likely {likely}, see kubectl describe pod {pod.name}"


def lost_with_node(reason: str, exit_code: int | None) -> bool:
    """Whether a container that ended this way was lost with its node."""
    if reason == "ContainerStatusUnknown":
        return True
    return reason == "Unknown" and exit_code == NODE_CAME_BACK


def _never_started(scene: WorkerObservation) -> WorkerLoss | None:
    """The loss if an init container failed, so the training container never started."""
    if scene.container is not None and scene.container.state != "Waiting":
        return None
    for init in scene.pod.containers:
        if init.init and init.state == "Terminated" and init.exit_code:
            words = f": {init.message}" if init.message else ""
            how = (
                "was killed: out of memory"
                if init.reason == "OOMKilled"
                else (f"failed with exit code {init.exit_code}")
            )
            message = f"init container {init.name} of worker {scene.pod.name} {how}{words}"
            age = scene.ago(init.finished)
            return WorkerLoss(
                cause=Cause.START_FAILED,
                message=message,
                age=age,
                container=init.name,
                exit_code=init.exit_code,
            )
    return None


def container_failure(scene: WorkerObservation) -> str:
    """The first other container that ended with a non-zero exit code, and where to look; "": none.

    Containers that end because the pod is taken away do not count."""
    pod = scene.pod
    if pod.deletion is not None or pod.reason or scene.disrupted_by:
        return ""
    # A failing init container is a loss; after the training the kubelet ends sidecars.
    trains = phase_of(scene.pod, scene.training) == "Running"
    others = (c for c in pod.containers if c.name != scene.training and (trains or not c.init))
    return next(filter(None, (_failed(container, pod.name) for container in others)), "")


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
