"""PyTorchJob (kubeflow.org/v1), of the training operator v1.

Layer: cli, pure.
"""

from __future__ import annotations

from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.cli.converting.command import processes_of
from trainrun_operator.cli.converting.gang import RESTARTS, Gang, template_of
from trainrun_operator.cli.converting.taken import Fields

HEAD = ("kubeflow.org/v1", "PyTorchJob")
TRAINS = "pytorch"
"""The container's name."""

SETTLED = {
    "spec.runPolicy.cleanPodPolicy": "pods of ended workers stay as retainFailedWorkers says",
    "spec.runPolicy.schedulingPolicy": "all workers are placed or none; schedulerName goes into "
    "the pod template",
    "spec.elasticPolicy.minReplicas": "a gang has one size",
    "spec.elasticPolicy.maxReplicas": "a gang has one size",
    "spec.elasticPolicy.metrics": "a gang has one size",
    "spec.elasticPolicy": "rendezvous is TrainRun's",
    "spec.pytorchReplicaSpecs.Master.restartPolicy": RESTARTS,
    "spec.pytorchReplicaSpecs.Worker.restartPolicy": RESTARTS,
}
"""Why a field is not carried over, by the beginning of its path."""


def gang_of(fields: Fields) -> Gang:
    """Master and Workers are one gang: rank 0 is the Master's."""
    notes: list[str] = []
    replicas, template = _replicas(fields, notes)
    made = template_of(template, trains=TRAINS, notes=notes)
    asked = fields.take("spec.nprocPerNode")
    elastic = fields.take("spec.elasticPolicy.nProcPerNode")
    retries = fields.take("spec.runPolicy.backoffLimit")
    restarts = fields.take("spec.elasticPolicy.maxRestarts")
    return Gang(
        replicas=replicas,
        template=made,
        processes=processes_of(
            elastic if asked is None else asked, made, field="spec.nprocPerNode", notes=notes
        ),
        max_failures=retries if restarts is None else restarts,
        deadline=fields.take("spec.runPolicy.activeDeadlineSeconds"),
        ttl=fields.take("spec.runPolicy.ttlSecondsAfterFinished"),
        suspend=bool(fields.take("spec.runPolicy.suspend")),
        notes=notes,
    )


def _replicas(fields: Fields, notes: list[str]) -> tuple[int, Any]:
    """How many there are, and their template: the Workers', where there are any."""
    total, template = 0, None
    for role in ("Worker", "Master"):
        place = f"spec.pytorchReplicaSpecs.{role}"
        found = fields.take(f"{place}.template")
        replicas = fields.take(f"{place}.replicas")
        if found is None and replicas is None:
            continue
        if found is None:
            raise InvalidSpec(f"{place}.template is missing")
        total += 1 if replicas is None else int(replicas)
        if template is None:
            template = found
        elif found != template:
            notes.append(f"{place}.template: the Workers' was taken, which differs from it")
    return total, template
