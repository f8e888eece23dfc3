"""JobSet (jobset.x-k8s.io/v1alpha2).

Layer: cli, pure.
"""

from __future__ import annotations

from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.pod_template import WORKER_CONTAINER
from trainrun_operator.cli.converting.gang import RESTARTS, Gang, template_of
from trainrun_operator.cli.converting.taken import Fields

HEAD = ("jobset.x-k8s.io/v1alpha2", "JobSet")

SETTLED = {
    "spec.failurePolicy": RESTARTS,
    "spec.successPolicy": "a run has succeeded when every rank has exited 0",
    "spec.network": "workers find each other without names",
    "spec.startupPolicy": "all workers start together",
    "spec.coordinator": "rank 0 is in worker 0",
}
"""Why a field is not carried over, by the beginning of its path."""

SETTLED_OF_A_JOB = {
    "spec.backoffLimit": RESTARTS,
    "spec.podFailurePolicy": RESTARTS,
    "spec.podReplacementPolicy": RESTARTS,
    "metadata": "write labels and annotations of the pods into workers.template.metadata",
}
"""The same of a job's template."""


def gang_of(fields: Fields) -> Gang:
    """All pods of all its jobs are one gang, where they have one template."""
    notes: list[str] = []
    jobs = fields.take("spec.replicatedJobs") or []
    pods, templates, deadlines = 0, [], []
    for number, job in enumerate(jobs):
        of_job = Fields(job)
        pods += _pods(of_job, f"spec.replicatedJobs[{number}]", notes)
        templates.append(of_job.take("template.spec.template"))
        deadlines.append(of_job.take("template.spec.activeDeadlineSeconds"))
        of_job.take("name")
        notes += [
            f"spec.replicatedJobs[{number}].{path}: {_reason(path)}" for path in of_job.left()
        ]
    if not templates:
        raise InvalidSpec("spec.replicatedJobs is empty")
    if any(template != templates[0] for template in templates):
        names = ", ".join(str(job.get("name")) for job in jobs)
        raise InvalidSpec(
            f"spec.replicatedJobs: {names} have pod templates that differ, and the workers of a "
            "TrainRun are equal; leave those in the file that train"
        )
    return Gang(
        replicas=pods,
        template=template_of(templates[0], trains=WORKER_CONTAINER, notes=notes),
        max_failures=fields.take("spec.failurePolicy.maxRestarts"),
        deadline=min((found for found in deadlines if found is not None), default=None),
        ttl=fields.take("spec.ttlSecondsAfterFinished"),
        suspend=bool(fields.take("spec.suspend")),
        notes=notes,
    )


def _pods(job: Fields, place: str, notes: list[str]) -> int:
    """How many pods of a job run at a time: no more than there are to complete."""
    replicas = job.take("replicas")
    parallelism: Any = job.take("template.spec.parallelism")
    completions: Any = job.take("template.spec.completions")
    job.take("template.spec.completionMode")
    job.take("template.spec.suspend")
    at_once = 1 if parallelism is None else int(parallelism)
    if completions is not None and int(completions) > at_once:
        notes.append(
            f"{place}.template.spec.completions: {completions}: all workers of a gang run at once, "
            f"and only {at_once} of these do"
        )
    elif completions is not None:
        at_once = int(completions)
    return (1 if replicas is None else int(replicas)) * at_once


def _reason(path: str) -> str:
    inner = path.removeprefix("template.")
    found = (why for field, why in SETTLED_OF_A_JOB.items() if inner.startswith(field))
    return next(found, "a TrainRun has no such field")
