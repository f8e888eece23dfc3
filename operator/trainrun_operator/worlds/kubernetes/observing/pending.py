"""Why a worker's pod has not started: no room, no image, a missing secret, or just on its way.

Layer: worlds/kubernetes; pure. In the words of scheduler and kubelet, which say what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from trainrun_operator.core.run.observation import PendingKind
from trainrun_operator.worlds.kubernetes.observing.pods import ContainerFact, PodFact

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
    "CrashLoopBackOff",  # of a sidecar: workers themselves are never restarted by the kubelet
)

MOUNT_PATIENCE = timedelta(seconds=60)
"""A secret or config map that is missing as a volume is told in the pod's events only, which the
operator does not read. Volumes and network that are not there after this time are taken for it."""


GATED: PendingKind = "SchedulingGated"
KUEUE = "kueue.x-k8s.io/admission"
"""The scheduling gate by which Kueue holds back what it does not know the owner of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPending:
    """Why a Pending pod has not started."""

    kind: PendingKind
    message: str
    stage: str
    """The sighting that its time is counted by: a slow pull that fails at last has not failed for
    as long as it took, and a pod whose gates were lifted has not looked for room before."""


def pending_of(pod: PodFact, *, placed_for: timedelta) -> PodPending:
    """Why it has not started; `placed_for` is since it was seen on its node."""
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
            f"volumes or network of the pod are not there on node {pod.node}; often a secret, a "
            f"config map or a volume is missing: see kubectl describe pod {pod.name}"
        )
        return PodPending(kind="ConfigError", message=message, stage="ConfigError")
    return PodPending(kind="Starting", message=_progress(pod), stage="Starting")


def held_back(pod: PodFact) -> str:
    """By which scheduling gates, and what to do; empty: by none."""
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
        message = "the scheduler has not looked at the pod yet"
        return PodPending(kind="Starting", message=message, stage="Scheduling")
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
