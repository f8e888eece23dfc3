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


def disruption_text(observed: WorkerObservation) -> str:
    """The pod's DisruptionTarget condition, in words."""
    disruption, reason = observed.pod.disruption, observed.disrupted_by
    detail = disruption.message if disruption is not None else ""
    text = DISRUPTIONS.get(reason, reason)
    return f"{text}: {detail}" if detail else text


def notice_of(observed: WorkerObservation) -> Notice | None:
    """The notice that the worker has; None: none."""
    return _of_pod(observed) or (of_node(observed) if observed.phase != "Ended" else None)


def _of_pod(observed: WorkerObservation) -> Notice | None:
    pod, reason = observed.pod, observed.disrupted_by
    if reason and not _only_unreachable(observed, reason):
        since = observed.disruption_since
        if observed.ended_before(since):
            return None
        return _ending(observed, disruption_text(observed), observed.ago(since))
    if reason or pod.deletion is None:
        return None
    asked = pod.deletion - timedelta(seconds=pod.grace or 0)
    if observed.ended_before(asked):
        return None
    return _ending(observed, "pod was deleted", observed.ago(asked))


def _ending(observed: WorkerObservation, text: str, age: timedelta) -> Notice:
    deletion = observed.pod.deletion
    if deletion is None:
        return _notice(text, age, None)
    if deletion > observed.now or not observed.answers or observed.phase != "Running":
        return _notice(text, age, deletion - observed.now)
    # Its kubelet was cut off and learns of the deletion late: the whole grace begins only then, and
    # the agent gets SIGTERM.
    own = observed.contact.state.notice if observed.contact.state is not None else None
    return Notice(reason=text) if own is None else replace(own, reason=text)


def _only_unreachable(observed: WorkerObservation, reason: str) -> bool:
    """Whether the node does not answer, so no kubelet carries out the eviction: silence decides."""
    node = observed.node
    return reason == "DeletionByTaintManager" and node is not None and node.ready != "True"


def of_node(observed: WorkerObservation) -> Notice | None:
    """The notice about its node; it explains a SIGTERM, also once the worker has ended."""
    node = observed.node
    if node is None:
        return None
    if node.deleted:
        age = observed.seen_for(NODE_GONE)
        left = max(GARBAGE_COLLECTION - age, timedelta(0))
        return _notice(f"node {node.name} was deleted", age, left)
    if node.deletion is not None:
        return _notice(f"node {node.name} is being deleted", observed.ago(node.deletion), None)
    fresh = [taint for taint in node.taints if not _accepted(observed, taint)]
    found = announced(fresh, observed.notices)
    if found is not None:
        taint, notice = found
        age = _age(observed, taint)
        text = f"node {node.name} {notice.means} (taint {taint})"
        promised = None if notice.seconds is None else timedelta(seconds=notice.seconds) - age
        return _notice(text, age, promised)
    return _by_no_execute(observed, node)


def _accepted(observed: WorkerObservation, taint: Taint) -> bool:
    """Whether the pod tolerates the taint and was placed in spite of it: then it is no notice."""
    tolerated = any(toleration.tolerates(taint) for toleration in observed.pod.tolerations)
    return tolerated and observed.seen_for(str(taint)) >= observed.seen_for(PLACED)


def _by_no_execute(observed: WorkerObservation, node: NodeFact) -> Notice | None:
    """The notice for another taint, for which the taint manager evicts with the pod's own grace."""
    grace = timedelta(seconds=observed.pod.usual_grace)
    ends = []
    for taint in node.taints:
        if taint.effect != NO_EXECUTE or taint.key in (*LIFE_CYCLE, *SWITCHED_OFF):
            continue
        allowed = patience(taint, observed.pod.tolerations)
        if allowed is not None:
            age = _age(observed, taint)
            ends.append((timedelta(seconds=allowed) + grace - age, str(taint), age))
    if not ends:
        return None
    soonest, text, age = min(ends)
    return _notice(f"node {node.name} has the taint {text}", age, soonest)


def _age(observed: WorkerObservation, taint: Taint) -> timedelta:
    return observed.ago(taint.added) if taint.added is not None else observed.seen_for(str(taint))


def _notice(reason: str, age: timedelta, left: timedelta | None) -> Notice:
    remaining = None if left is None else max(left.total_seconds(), 0.0)
    return Notice(reason=reason, age=age.total_seconds(), remaining=remaining)


def loss_of(observed: WorkerObservation, *, noticed: bool) -> WorkerLoss | None:
    """Why the worker was lost, None if it was not; `noticed`: it had a notice."""
    if observed.phase != "Ended":
        return _node_lost(observed)
    return (
        _disrupted(observed)
        or _refused(observed)
        or _terminated(observed, noticed=noticed)
        or _never_started(observed)
        or _node_lost(observed)
    )


# ------------------------------------------------------------------------------------- the node


def _node_lost(observed: WorkerObservation) -> WorkerLoss | None:
    node, container = observed.node, observed.container
    if container is not None and container.state == "Terminated":
        return None  # it had ended before, for another reason
    if observed.disrupted_by == "DeletionByPodGC":
        return _gone(observed, observed.ago(observed.disruption_since))
    if node is None or (observed.phase == "Pending" and observed.seen_for(PLACED) < SETTLING):
        return None
    off = next((taint for taint in node.taints if taint.key in SWITCHED_OFF), None)
    if off is not None:
        message = f"{observed.node_text} is switched off (taint {off})"
        return WorkerLoss(
            cause=Cause.NODE_LOST, message=message, age=_age(observed, off), unreachable=True
        )
    if node.deleted and not observed.answers:
        return _gone(observed, observed.seen_for(NODE_GONE))
    return None


def _gone(observed: WorkerObservation, age: timedelta) -> WorkerLoss:
    """The loss of a node without an object: no kubelet is left to confirm the end of the pod."""
    cause, message = Cause.NODE_LOST, f"{observed.node_text} is gone: its object was deleted"
    if observed.node is not None and observed.node.unschedulable:  # cordoned before: on purpose
        cause, message = Cause.PREEMPTED, f"{observed.node_text} was cordoned and removed"
    return WorkerLoss(cause=cause, message=message, age=age, unreachable=True)


# -------------------------------------------------------------------------- decided from outside


def _disrupted(observed: WorkerObservation) -> WorkerLoss | None:
    reason = observed.disrupted_by
    if not reason and observed.pod.reason != "Evicted":
        return None
    if observed.ended_before(observed.disruption_since):
        return None  # a drain or a taint removes ended pods, too
    if reason == "DeletionByPodGC":
        return _gone(observed, observed.ago(observed.disruption_since))
    if reason in ("TerminationByKubelet", ""):
        return _ended_by_kubelet(observed)
    message = f"worker {observed.pod.name} was {disruption_text(observed)}"
    age = observed.ago(observed.disruption_since)
    return WorkerLoss(cause=Cause.PREEMPTED, message=message, age=age)


def _ended_by_kubelet(observed: WorkerObservation) -> WorkerLoss:
    pod, disruption = observed.pod, observed.pod.disruption
    detail = pod.message or (disruption.message if disruption is not None else "")
    cause = Cause.PREEMPTED
    if "shutdown" in detail:
        message = f"{observed.node_text} shuts down: {detail}"
    elif pod.reason == "Preempting":
        message = f"worker {pod.name} made room for a critical pod on {observed.node_text}"
    else:
        why = detail or "no reason given"
        message = f"worker {pod.name} was evicted by {observed.node_text}: {why}"
        # Its own use of disk will repeat: charged like any other failure of the training.
        own = any(text in detail for text in OWN_LIMITS)
        cause = Cause.TERMINATED if own else Cause.EVICTED
    return WorkerLoss(cause=cause, message=message, age=observed.ago(observed.disruption_since))


def _refused(observed: WorkerObservation) -> WorkerLoss | None:
    """The loss if the kubelet refused the pod (device, memory, labels), or gave it up."""
    pod, container = observed.pod, observed.container
    if pod.phase != "Failed" or not pod.reason:
        return None
    detail = f": {pod.message}" if pod.message else ""
    if pod.reason == "DeadlineExceeded":
        message = f"worker {pod.name} reached activeDeadlineSeconds of its pod template{detail}"
        return WorkerLoss(cause=Cause.TERMINATED, message=message)
    message = f"{observed.node_text} refused worker {pod.name} ({pod.reason}){detail}"
    if observed.contact.state is None and (container is None or container.state == "Waiting"):
        return WorkerLoss(cause=Cause.START_FAILED, message=message)
    # It ran already: a restarted node admits its pods again, and may lack its GPUs.
    return WorkerLoss(cause=Cause.NODE_LOST, message=message)


# --------------------------------------------------------------------------------- its containers


def _terminated(observed: WorkerObservation, *, noticed: bool) -> WorkerLoss | None:
    pod, ended = observed.pod, observed.container
    if ended is None or ended.state != "Terminated":
        return None
    age = observed.ago(ended.finished)
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
        message = f"{observed.node_text} was restarted or lost its containers ({ended.reason})"
        return WorkerLoss(cause=Cause.NODE_LOST, message=message, age=age)
    if ended.reason in ("StartError", "ContainerCannotRun"):
        message = f"worker {pod.name} cannot start: {ended.message or ended.reason}"
        return WorkerLoss(cause=Cause.START_FAILED, message=message, age=age, container=ended.name)
    if not noticed and _got_sigterm(observed, ended.exit_code):
        node = of_node(observed)
        why = _from_inside(pod) if node is None else f": {node.reason}"
        cause = Cause.TERMINATED if node is None else Cause.PREEMPTED
        return WorkerLoss(cause=cause, message=f"worker {pod.name} got SIGTERM{why}", age=age)
    if observed.contact.state is None and ended.exit_code and not noticed:
        words = ended.message or "it left no message, and its agent sent no heartbeat"
        message = f"worker {pod.name} ended with exit code {ended.exit_code}: {words}"
        return WorkerLoss(cause=Cause.UNKNOWN, message=message, age=age, container=ended.name)
    return None


def _got_sigterm(observed: WorkerObservation, exit_code: int | None) -> bool:
    """Whether its agent got SIGTERM: it then exits with this code, unless it is killed before."""
    state = observed.contact.state
    return exit_code == SIGTERMED or (state is not None and state.notice is not None)


def _from_inside(pod: PodFact) -> str:
    likely = f"its {pod.probes} has failed" if pod.probes else "a process in it sent the signal"
    return f" and was not taken away: most likely {likely}, see kubectl describe pod {pod.name}"


def lost_with_node(reason: str, exit_code: int | None) -> bool:
    """Whether a container that ended this way was lost with its node."""
    if reason == "ContainerStatusUnknown":
        return True
    return reason == "Unknown" and exit_code == NODE_CAME_BACK


def _never_started(observed: WorkerObservation) -> WorkerLoss | None:
    """The loss if an init container failed, so the training container never started."""
    if observed.container is not None and observed.container.state != "Waiting":
        return None
    for init in observed.pod.containers:
        if init.init and init.state == "Terminated" and init.exit_code:
            words = f": {init.message}" if init.message else ""
            how = (
                "was killed: out of memory"
                if init.reason == "OOMKilled"
                else (f"failed with exit code {init.exit_code}")
            )
            message = f"init container {init.name} of worker {observed.pod.name} {how}{words}"
            age = observed.ago(init.finished)
            return WorkerLoss(
                cause=Cause.START_FAILED,
                message=message,
                age=age,
                container=init.name,
                exit_code=init.exit_code,
            )
    return None


def container_failure(observed: WorkerObservation) -> str:
    """The first other container that ended with a non-zero exit code, and where to look; "": none.

    Containers that end because the pod is taken away do not count."""
    pod = observed.pod
    if pod.deletion is not None or pod.reason or observed.disrupted_by:
        return ""
    # A failing init container is a loss; after the training the kubelet ends sidecars.
    trains = phase_of(observed.pod, observed.training) == "Running"
    others = (c for c in pod.containers if c.name != observed.training and (trains or not c.init))
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
