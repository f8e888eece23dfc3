"""What every kind of job comes down to: equal workers, and how long they may go on failing.

Layer: cli, pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainrun.errors import InvalidSpec
from trainrun_operator.api.pod_template import WORKER_CONTAINER
from trainrun_operator.api.resources import TRAINRUN
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
GPU = "nvidia.com/gpu"

_WRITTEN_BY_OTHERS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_PLAIN_WORDS = re.compile(r"[\w\s./:=,@%+'\"-]*")
_LAUNCHER = re.compile(
    r"\b(torchrun|torch\.distributed\.(run|launch)|accelerate launch|deepspeed|mpirun|srun)\b"
)
_SHELL = re.compile(r"(.*/)?(ba|da|z)?sh")


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
    """A pod template whose container `trains`, if it has one, is the one that trains here."""
    template = {name: part for name, part in dict(value or {}).items() if part}
    spec = dict(template.get("spec") or {})
    if spec.pop("restartPolicy", None) not in (None, "Never"):
        notes.append(f"restartPolicy of the pods: {RESTARTS}")
    containers = [dict(container) for container in spec.get("containers") or ()]
    if not containers:
        raise InvalidSpec("the pod template has no containers")
    if all(container.get("name") != WORKER_CONTAINER for container in containers):
        containers.sort(key=lambda container: container.get("name") != trains)
    training = training_container(containers)
    training.update(_without_shell(training, notes))
    metadata = {name: part for name, part in (template.get("metadata") or {}).items() if part}
    spec["containers"] = containers
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}


def training_container(containers: list[dict[str, Any]]) -> dict[str, Any]:
    """The container that trains."""
    named = (found for found in containers if found.get("name") == WORKER_CONTAINER)
    return next(named, containers[0])


def processes_of(
    said: Any, template: dict[str, Any], *, field: str, notes: list[str]
) -> int | None:
    """Processes per worker: a number, or `gpu` or `auto`, which mean the GPUs of the container."""
    text = "" if said is None else str(said)
    if text.isdecimal():
        return int(text)
    limits = training_container(template["spec"]["containers"]).get("resources", {})
    gpus = str(limits.get("limits", {}).get(GPU, ""))
    if text in ("gpu", "auto") and gpus.isdecimal():
        return int(gpus)
    if text:
        notes.append(f"{field}: {text}: write the number of processes as processesPerWorker")
    return None


def hidden_launcher(template: Mapping[str, Any]) -> str:
    """What a shell script of the container that trains starts processes with; "" for none.

    The agent starts one process per rank, so each of them would start all of them.
    """
    container = training_container(template["spec"]["containers"])
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if not words or not _SHELL.fullmatch(str(words[0])):
        return ""
    found = _LAUNCHER.search(" ".join(map(str, words[1:])))
    return found[0] if found else ""


def _without_shell(container: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """A command that only wraps a launcher into a shell, without the shell."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if len(words) != 3 or not _SHELL.fullmatch(words[0]) or not re.fullmatch("-[elx]*c", words[1]):
        return {}
    script = words[2].replace("\\\n", " ").strip()
    if "\n" in script or not _PLAIN_WORDS.fullmatch(script):
        return {}
    try:
        bare = shlex.split(script.removeprefix("exec "))
    except ValueError:
        return {}
    notes.append(f"the command's shell: left out, so that it begins with {bare[0]}")
    container.pop("args", None)
    return {"command": bare}
