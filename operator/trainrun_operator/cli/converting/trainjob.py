"""TrainJob (trainer.kubeflow.org/v1alpha1), of Kubeflow Trainer v2.

Layer: cli, pure. Half of it stands in the runtime that it names, an object of the cluster.
"""

from __future__ import annotations

from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.pod_template import WORKER_CONTAINER
from trainrun_operator.cli.converting.command import processes_of
from trainrun_operator.cli.converting.gang import Gang, template_of
from trainrun_operator.cli.converting.taken import Fields

HEAD = ("trainer.kubeflow.org/v1alpha1", "TrainJob")

SETTLED = {
    "spec.initializer": "write an init container; checkpoint.initialFrom reads initial weights",
    "spec.podTemplateOverrides": "write it into workers.template",
    "spec.runtimePatches": "write it into workers.template",
    "spec.labels": "write them into workers.template.metadata.labels",
    "spec.annotations": "write them into workers.template.metadata.annotations",
}
"""Why a field is not carried over, by the beginning of its path."""


def gang_of(fields: Fields) -> Gang:
    """What the job itself says; its runtime is named in a note."""
    notes: list[str] = []
    runtime = fields.take("spec.runtimeRef") or {}
    made = template_of(_template(fields), trains=WORKER_CONTAINER, notes=notes)
    notes.append(
        f"spec.runtimeRef: what the runtime {runtime.get('name')} gives its pods (volumes, node "
        "selectors, the number of processes) is not in this file; write it into workers.template"
    )
    processes = processes_of(
        fields.take("spec.trainer.numProcPerNode"),
        made,
        field="spec.trainer.numProcPerNode",
        notes=notes,
    )
    nodes = fields.take("spec.trainer.numNodes")
    return Gang(
        replicas=1 if nodes is None else int(nodes),
        template=made,
        processes=processes,
        deadline=fields.take("spec.activeDeadlineSeconds"),
        suspend=bool(fields.take("spec.suspend")),
        notes=notes,
    )


def _template(fields: Fields) -> dict[str, Any]:
    trainer = {
        name: fields.take(f"spec.trainer.{name}") for name in ("image", "command", "args", "env")
    }
    for name in ("image", "command"):
        if not trainer[name]:
            raise InvalidSpec(
                f"spec.trainer.{name} is missing: the job takes it from its runtime; write it into "
                "the file first"
            )
    container = {"name": WORKER_CONTAINER, **{name: v for name, v in trainer.items() if v}}
    if resources := fields.take("spec.trainer.resourcesPerNode"):
        container["resources"] = resources
    return {"spec": {"containers": [container]}}
