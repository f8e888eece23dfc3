"""The kinds of jobs that can be converted, and how the fields of each are converted.

Layer: cli, pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trainrun.errors import InvalidSpec
from trainrun_operator.api.pod_template import WORKER_CONTAINER
from trainrun_operator.cli.converting.gang import (
    RESTARTS,
    Fields,
    Gang,
    non_empty,
    processes_of,
    reason,
    template_of,
)


class JobKind(NamedTuple):
    """A kind of job that can be converted."""

    head: tuple[str, str]
    """apiVersion and kind."""
    gang_of: Callable[[Fields, list[str]], Gang]
    """Takes the fields that it converts, and adds notes."""
    settled: Mapping[str, str]
    """Why a field is left out, by path prefix."""


# PyTorchJob, of the training operator v1.

TRAINS = "pytorch"
"""The container's name."""

SETTLED_OF_PYTORCHJOB = {
    "spec.runPolicy.cleanPodPolicy": "retainFailedWorkers decides which pods of ended workers stay",
    "spec.runPolicy.schedulingPolicy": "all workers are placed or none; write schedulerName into "
    "the pod template",
    "spec.elasticPolicy.minReplicas": "a gang has a fixed size",
    "spec.elasticPolicy.maxReplicas": "a gang has a fixed size",
    "spec.elasticPolicy.metrics": "a gang has a fixed size",
    "spec.elasticPolicy": "TrainRun does the rendezvous",
    "spec.pytorchReplicaSpecs.Master.restartPolicy": RESTARTS,
    "spec.pytorchReplicaSpecs.Worker.restartPolicy": RESTARTS,
}


def of_pytorchjob(fields: Fields, notes: list[str]) -> Gang:
    """Master and Workers become one gang; rank 0 is the Master's."""
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
    )


def _replicas(fields: Fields, notes: list[str]) -> tuple[int, Any]:
    """The number of Master and Workers, and their template: the Workers' if there are any."""
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
            notes.append(
                f"{place}.template was left out: the Workers' template differs and is used for all"
            )
    return total, template


# TrainJob, of Kubeflow Trainer v2. Half of it is in the runtime that it names, an object in the
# cluster.

SETTLED_OF_TRAINJOB = {
    "spec.initializer": "write an init container; checkpoint.initialFrom reads initial weights",
    "spec.podTemplateOverrides": "write it into workers.template",
    "spec.runtimePatches": "write it into workers.template",
    "spec.labels": "write them into workers.template.metadata.labels",
    "spec.annotations": "write them into workers.template.metadata.annotations",
}


def of_trainjob(fields: Fields, notes: list[str]) -> Gang:
    """Converts the job's own fields; a note names its runtime."""
    runtime = fields.take("spec.runtimeRef") or {}
    made = template_of(_template(fields), trains=WORKER_CONTAINER, notes=notes)
    notes.append(
        f"spec.runtimeRef: this file lacks what the runtime {runtime.get('name')} adds to its pods "
        "(volumes, node selectors, the number of processes); write it into workers.template"
    )
    each = "spec.trainer.numProcPerNode"
    nodes = fields.take("spec.trainer.numNodes")
    return Gang(
        replicas=1 if nodes is None else int(nodes),
        template=made,
        processes=processes_of(fields.take(each), made, field=each, notes=notes),
        deadline=fields.take("spec.activeDeadlineSeconds"),
        suspend=bool(fields.take("spec.suspend")),
    )


def _template(fields: Fields) -> dict[str, Any]:
    trainer = {
        name: fields.take(f"spec.trainer.{name}") for name in ("image", "command", "args", "env")
    }
    for name in ("image", "command"):
        if not trainer[name]:
            raise InvalidSpec(
                f"spec.trainer.{name} is missing: the job gets it from its runtime; write it into "
                "the file first"
            )
    resources = fields.take("spec.trainer.resourcesPerNode")
    container = non_empty({"name": WORKER_CONTAINER, **trainer, "resources": resources})
    return {"spec": {"containers": [container]}}


# JobSet.

SETTLED_OF_JOBSET = {
    "spec.failurePolicy": RESTARTS,
    "spec.successPolicy": "a run succeeds when every rank has exited with code 0",
    "spec.network": "workers find each other without DNS names",
    "spec.startupPolicy": "all workers start together",
    "spec.coordinator": "rank 0 is in worker 0",
}
SETTLED_OF_A_JOB = {
    "spec.backoffLimit": RESTARTS,
    "spec.podFailurePolicy": RESTARTS,
    "spec.podReplacementPolicy": RESTARTS,
    "metadata": "write labels and annotations of the pods into workers.template.metadata",
}
"""For the template of a replicated job."""


def of_jobset(fields: Fields, notes: list[str]) -> Gang:
    """All pods of all its jobs become one gang. Raises InvalidSpec if their templates differ."""
    jobs = fields.take("spec.replicatedJobs") or []
    pods, templates, deadlines = 0, [], []
    for number, job in enumerate(jobs):
        of_job = Fields(job)
        pods += _pods(of_job, f"spec.replicatedJobs[{number}]", notes)
        templates.append(of_job.take("template.spec.template"))
        deadlines.append(of_job.take("template.spec.activeDeadlineSeconds"))
        of_job.take("name")
        for path in of_job.left():
            why = reason(path.removeprefix("template."), SETTLED_OF_A_JOB)
            notes.append(f"spec.replicatedJobs[{number}].{path} was left out: {why}")
    if not templates:
        raise InvalidSpec("spec.replicatedJobs is empty")
    if any(template != templates[0] for template in templates):
        names = ", ".join(str(job.get("name")) for job in jobs)
        raise InvalidSpec(
            f"spec.replicatedJobs: {names} have pod templates that differ, but all workers of a "
            "TrainRun are equal; leave only the jobs that train in the file"
        )
    return Gang(
        replicas=pods,
        template=template_of(templates[0], trains=WORKER_CONTAINER, notes=notes),
        max_failures=fields.take("spec.failurePolicy.maxRestarts"),
        deadline=min((found for found in deadlines if found is not None), default=None),
        ttl=fields.take("spec.ttlSecondsAfterFinished"),
        suspend=bool(fields.take("spec.suspend")),
    )


def _pods(job: Fields, place: str, notes: list[str]) -> int:
    """How many pods of a job run at a time: parallelism, at most completions, times replicas."""
    replicas = job.take("replicas")
    parallelism: Any = job.take("template.spec.parallelism")
    completions: Any = job.take("template.spec.completions")
    job.take("template.spec.completionMode")
    job.take("template.spec.suspend")
    at_once = 1 if parallelism is None else int(parallelism)
    if completions is not None and int(completions) > at_once:
        notes.append(
            f"{place}.template.spec.completions: {completions}: all workers of a gang run at once, "
            f"so only {at_once} of these become workers"
        )
    elif completions is not None:
        at_once = int(completions)
    return (1 if replicas is None else int(replicas)) * at_once


KINDS = (
    JobKind(("kubeflow.org/v1", "PyTorchJob"), of_pytorchjob, SETTLED_OF_PYTORCHJOB),
    JobKind(("trainer.kubeflow.org/v1alpha1", "TrainJob"), of_trainjob, SETTLED_OF_TRAINJOB),
    JobKind(("jobset.x-k8s.io/v1alpha2", "JobSet"), of_jobset, SETTLED_OF_JOBSET),
)
