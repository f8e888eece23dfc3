"""What every kind of job comes down to: equal workers, and how long they may go on failing.

Layer: cli, pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.pod_template import WORKER_CONTAINER
from trainrun_operator.api.resources import TRAINRUN
from trainrun_operator.cli.converting.command import training_container, without_shell
from trainrun_operator.cli.converting.taken import Fields

MAX_FAILURES = 3
"""Where the job does not say how often it may fail."""
STORAGE = "s3://my-bucket/runs"
"""Where nobody says where checkpoints go: no other kind of job knows."""
RESTARTS = "TrainRun restarts processes and replaces pods, within failurePolicy"
"""Why no restart policy is carried over."""
QUEUE = "kueue.x-k8s.io/queue-name"
JOBSETS = "alpha.jobset.sigs.k8s.io/"
"""Annotations by which a JobSet is placed."""

_WRITTEN_BY_OTHERS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(kw_only=True)
class Gang:
    """What becomes a TrainRun."""

    replicas: int
    template: dict[str, Any]
    processes: int | None = None
    max_failures: int | None = None
    deadline: int | None = None
    """Seconds that the job may take."""
    ttl: int | None = None
    """Seconds after its end until it is deleted."""
    suspend: bool = False
    notes: list[str] = field(default_factory=list)
    """On what was written that the job does not say, or is not carried over."""


def metadata_of(fields: Fields, notes: list[str]) -> dict[str, Any]:
    """Name, namespace, labels and annotations."""
    metadata = dict(fields.take("metadata") or {})
    if not metadata.get("name"):
        raise InvalidSpec("metadata.name is missing; a run needs a name")
    for name in _WRITTEN_BY_OTHERS:
        metadata.pop(name, None)
    labels = dict(metadata.get("labels") or {})
    if labels.pop(QUEUE, None) is not None:
        notes.append(f"metadata.labels[{QUEUE}]: Kueue queues no TrainRuns")
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(_LAST_APPLIED, None)
    for name in [name for name in annotations if name.startswith(JOBSETS)]:
        del annotations[name]
        notes.append(f"metadata.annotations[{name}]: write affinity into workers.template")
    return {
        name: value
        for name, value in {**metadata, "labels": labels, "annotations": annotations}.items()
        if value
    }


def document_of(metadata: Mapping[str, Any], gang: Gang, *, storage: str | None) -> dict[str, Any]:
    """The TrainRun, as somebody would write it."""
    if storage is None:
        gang.notes.append(
            f"storage.uri: {STORAGE} was written; write where this run's checkpoints go, and "
            "storage.credentialsSecretRef where a Secret says how to get there"
        )
    if gang.max_failures is None:
        gang.notes.append(
            f"failurePolicy.maxFailures: {MAX_FAILURES} was written; nothing said how many "
            "failures the job may survive"
        )
    workers: dict[str, Any] = {"replicas": gang.replicas}
    if gang.processes is not None:
        workers["processesPerWorker"] = gang.processes
    failures = MAX_FAILURES if gang.max_failures is None else gang.max_failures
    spec: dict[str, Any] = {
        "workers": {**workers, "template": gang.template},
        "storage": {"uri": storage or STORAGE},
        "failurePolicy": {"maxFailures": failures},
    }
    for name, seconds in (("activeDeadline", gang.deadline), ("ttlAfterFinished", gang.ttl)):
        if seconds is not None:
            spec[name] = f"{seconds}s"
    if gang.suspend:
        spec["suspend"] = True
    return {**TRAINRUN.head(), "metadata": dict(metadata), "spec": spec}


def template_of(value: Any, *, trains: str, notes: list[str]) -> dict[str, Any]:
    """A pod template whose container `trains`, if it has one, is the one that trains here: beside
    others it needs the name that says so."""
    template = {name: part for name, part in dict(value or {}).items() if part}
    spec = dict(template.get("spec") or {})
    if spec.pop("restartPolicy", None) not in (None, "Never"):
        notes.append(f"restartPolicy of the pods: {RESTARTS}")
    containers = [dict(container) for container in spec.get("containers") or ()]
    if not containers:
        raise InvalidSpec("the pod template has no containers")
    names = [container.get("name") for container in containers]
    if len(names) > 1 and WORKER_CONTAINER not in names and trains in names:
        containers[names.index(trains)]["name"] = WORKER_CONTAINER
        notes.append(
            f"containers[{names.index(trains)}].name: {trains} was renamed to {WORKER_CONTAINER}, "
            "the name of the container that trains"
        )
    spec["containers"] = containers
    training = training_container({"spec": spec})
    if bare := without_shell(training, notes):
        training["command"] = bare
        training.pop("args", None)
    metadata = {name: part for name, part in (template.get("metadata") or {}).items() if part}
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}
