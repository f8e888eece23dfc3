"""Every name that TrainRun uses in a cluster: labels, annotations, volumes, paths, variables.

Layer: worlds/kubernetes, leaf. Each is defined here once; users select and debug by them, so they
are part of TrainRun's public interface.
"""

from __future__ import annotations

RUN_LABEL = "trainrun.dev/run"
"""Name of the TrainRun, for users and log tools."""
RUN_UID_LABEL = "trainrun.dev/run-uid"
"""Its uid; informers select by it."""
SLOT_LABEL = "trainrun.dev/slot"
"""The worker's number in the gang, its node rank."""
CREATION_LABEL = "trainrun.dev/creation"
"""The attempt for which the worker was created; part of its name, with the slot."""
TEMPLATE_HASH_LABEL = "trainrun.dev/template-hash"
"""Hash of the worker's pod template."""
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "trainrun"
SIGNATURE_ANNOTATION = "trainrun.dev/signature"
"""Proof that an operator of this installation created the pod, see `signature_of`."""
AVOIDS_ANNOTATION = "trainrun.dev/avoids"
"""Nodes that the pod must avoid, separated by commas: workers were lost there just before."""
STAYS = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotations that stop autoscalers from moving a pod for bin packing."""
DEFAULT_CONTAINER_ANNOTATION = "kubectl.kubernetes.io/default-container"

AUDIENCE = "trainrun-agents"
"""Audience of the tokens that agents send to the operator; they work nowhere else."""

VOLUME = "trainrun"
"""Agent, staging and downloads. A template can choose the disk by a volume of this name."""
MOUNT = "/trainrun"
WORK_FOLDER = f"{MOUNT}/work"
CACHE_FOLDER = f"{MOUNT}/cache"
TOKEN_VOLUME = "trainrun-token"
TOKEN_MOUNT = "/var/run/secrets/trainrun"
TOKEN_NAME = "token"
TOKEN_FILE = f"{TOKEN_MOUNT}/{TOKEN_NAME}"

SWEEP_LABEL = "trainrun.dev/sweep"
"""Name of the TrainSweep that a trial's TrainRun, or a clerk, belongs to."""
SWEEP_UID_LABEL = "trainrun.dev/sweep-uid"
TRIAL_LABEL = "trainrun.dev/trial"
"""Number of the trial."""
OPENING_LABEL = "trainrun.dev/opening"
"""How often the trial was opened; each opening has its own TrainRun."""
CLERK = "clerk"
"""Name of a clerk's container, and part of the names of its pods."""
