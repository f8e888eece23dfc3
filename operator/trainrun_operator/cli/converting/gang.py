"""The gang that every kind of job is converted to: equal workers, their command, failure limits.

Layer: cli, pure. Invariant: every field of a job is either converted or listed.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainrun.contract.launcher import LauncherRefused, torch_launch
from trainrun.errors import InvalidSpec
from trainrun_operator.api.pod_template import WORKER_CONTAINER
from trainrun_operator.api.resources import TRAINRUN

Path = tuple[str, ...]

MAX_FAILURES = 3
"""If the job does not say how often it may fail."""
STORAGE = "s3://my-bucket/runs"
"""Placeholder without --storage: jobs do not say where checkpoints are stored."""
RESTARTS = "TrainRun restarts processes and replaces pods, as failurePolicy allows"
"""Why restart policies are left out."""
QUEUE = "kueue.x-k8s.io/queue-name"
JOBSETS = "alpha.jobset.sigs.k8s.io/"
"""Annotations by which a JobSet is placed."""

_WRITTEN_BY_OTHERS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Fields:
    """The fields of a resource that have not been taken yet."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Keep a copy."""
        self._rest: dict[str, Any] = copy.deepcopy(dict(document))

    def take(self, path: str) -> Any:
        """Remove and return the value at `spec.like.this`; None if there is none."""
        *parents, last = path.split(".")
        owner: Any = self._rest
        for key in parents:
            owner = owner.get(key) if isinstance(owner, dict) else None
        return owner.pop(last, None) if isinstance(owner, dict) else None

    def left(self) -> list[str]:
        """Paths of the fields that are left; a list is one value, and empty values do not count."""
        return [".".join(path) for path in _leaves(self._rest, ())]


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif value is not None and value != []:
        yield path


def reason(path: str, settled: Mapping[str, str]) -> str:
    """Why the field at `path` is left out; `settled` has reasons by path prefix."""
    found = (why for field, why in settled.items() if path.startswith(field))
    return next(found, "a TrainRun has no such field")


def non_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with a value."""
    return {name: value for name, value in fields.items() if value}


@dataclass(kw_only=True)
class Gang:
    """A job's fields for a TrainRun."""

    replicas: int
    template: dict[str, Any]
    processes: int | None = None
    max_failures: int | None = None
    deadline: int | None = None
    """Seconds that the job may take."""
    ttl: int | None = None
    """Seconds from its end to its deletion."""
    suspend: bool = False


def metadata_of(fields: Fields, notes: list[str]) -> dict[str, Any]:
    """Name, namespace, labels and annotations."""
    metadata = dict(fields.take("metadata") or {})
    if not metadata.get("name"):
        raise InvalidSpec("metadata.name is missing; give the run a name")
    for name in _WRITTEN_BY_OTHERS:
        metadata.pop(name, None)
    labels = dict(metadata.get("labels") or {})
    if labels.pop(QUEUE, None) is not None:
        notes.append(f"metadata.labels[{QUEUE}] was left out: Kueue does not queue TrainRuns")
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(_LAST_APPLIED, None)
    for name in [name for name in annotations if name.startswith(JOBSETS)]:
        del annotations[name]
        notes.append(
            f"metadata.annotations[{name}] was left out; write affinity into workers.template"
        )
    return non_empty({**metadata, "labels": labels, "annotations": annotations})


def document_of(
    metadata: Mapping[str, Any], gang: Gang, notes: list[str], *, storage: str | None
) -> dict[str, Any]:
    """The TrainRun, as a user would write it."""
    if storage is None:
        notes.append(
            f"storage.uri: {STORAGE} is a placeholder; write where to store this run's "
            "checkpoints, and storage.credentialsSecretRef if a Secret holds the credentials"
        )
    failures = gang.max_failures
    if failures is None:
        failures = MAX_FAILURES
        notes.append(
            f"failurePolicy.maxFailures: {failures} is a default, because the job does not say how "
            "many failures it may survive; change it if needed"
        )
    workers = {
        "replicas": gang.replicas,
        "processesPerWorker": gang.processes,
        "template": gang.template,
    }
    spec = {
        "workers": {name: value for name, value in workers.items() if value is not None},
        "storage": {"uri": storage or STORAGE},
        "failurePolicy": {"maxFailures": failures},
        "activeDeadline": _duration(gang.deadline),
        "ttlAfterFinished": _duration(gang.ttl),
        "suspend": gang.suspend,
    }
    return {**TRAINRUN.head(), "metadata": dict(metadata), "spec": non_empty(spec)}


def _duration(seconds: int | None) -> str | None:
    return None if seconds is None else f"{seconds}s"


def template_of(value: Any, *, trains: str, notes: list[str]) -> dict[str, Any]:
    """The pod template, with its container named `trains` renamed to `worker` if there are several
    containers and none has that name."""
    template = dict(value or {})
    spec = dict(template.get("spec") or {})
    if spec.pop("restartPolicy", None) not in (None, "Never"):
        notes.append(f"the pods' restartPolicy was left out: {RESTARTS}")
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
    return non_empty({"metadata": non_empty(template.get("metadata") or {}), "spec": spec})


GPU = "nvidia.com/gpu"

_SHELL = re.compile(r"(.*/)?(ba|da|z)?sh")
_LAUNCHER = re.compile(
    r"\b(torchrun|torch\.distributed\.(run|launch)|accelerate launch|deepspeed|mpirun|srun|"
    r"(fabric|lightning) run)\b"
)
_STARTS_TRAINING = re.compile(r"(.*/)?(torchrun|python(3(\.\d+)?)?)")
_FILLED = re.compile(
    r"\$[({]?(PET_\w+|JOB_COMPLETION_INDEX|JOBSET_\w+|(?<=\()(?:(?:NODE_)?RANK|WORLD_SIZE|MASTER_\w+))"
)
"""Variables that jobs' operators set; `$(RANK)` is replaced before any process has a RANK."""
_READ = re.compile(r"metadata\.(?:annotations|labels)\[\W+([^'\\]+)")
"""Annotations and labels that the downward API reads from a pod's metadata."""
_PLAIN_WORDS = re.compile(r"[\w\s./:=,@%+'\"-]*")
"""Text that a shell would only split and unquote."""


def training_container(template: Mapping[str, Any]) -> dict[str, Any]:
    """The container that trains."""
    containers: list[dict[str, Any]] = template["spec"]["containers"]
    named = (found for found in containers if found.get("name") == WORKER_CONTAINER)
    return next(named, containers[0])


def processes_of(
    asked: Any, template: Mapping[str, Any], *, field: str, notes: list[str]
) -> int | None:
    """Processes per worker that torchrun must start; None if its own options say it.

    `asked` is a number, or `gpu` or `auto`, which mean the container's GPUs; None is `auto`, as in
    Kubeflow. A command that is not a launcher is one process: None.
    """
    container = training_container(template)
    try:
        launch = torch_launch(_words(container))
    except LauncherRefused:
        return None
    text = "auto" if asked is None else str(asked)
    if launch is None:
        if asked is not None and text != "1":
            notes.append(
                f"{field}: {text}: the command is not a launcher, so each worker runs one process; "
                "set processesPerWorker to start more"
            )
        return None
    if launch.processes is not None:
        return None
    number = _gpus(container) if text in ("gpu", "auto") else text
    if number.isdecimal():
        return int(number)
    notes.append(f"{field}: {text}: write the number of processes as processesPerWorker")
    return None


def hidden_launcher(template: Mapping[str, Any]) -> str:
    """The launcher that a shell script of the training container starts; "" for none.

    The agent starts one process per rank, so each of them would launch all ranks again.
    """
    words = _words(training_container(template))
    if not words or not _SHELL.fullmatch(words[0]):
        return ""
    found = _LAUNCHER.search(" ".join(words[1:]))
    return found[0] if found else ""


def unfilled(template: Mapping[str, Any], words: Sequence[str]) -> list[str]:
    """A problem for each value that the training container reads, in these words or its variables,
    and that only the job's operator would set."""
    env = str(training_container(template).get("env"))
    read = [name for name in _READ.findall(env) if f"'{name}'" not in str(template.get("metadata"))]
    found = _FILLED.findall(" ".join((*words, env)))
    return [
        f"{name}: only the job's operator sets this; use RANK, NODE_RANK, WORLD_SIZE, MASTER_ADDR "
        "or MASTER_PORT, which each process has in its environment for the script or a shell "
        "($RANK)"
        for name in dict.fromkeys([*read, *found])
        if f"'name': '{name}'" not in env
    ]


def without_shell(container: Mapping[str, Any], notes: list[str]) -> list[str]:
    """The words of a container's command without a shell that only starts them.

    Empty if there is no such shell.
    """
    words = _words(container)
    if len(words) != 3 or not _SHELL.fullmatch(words[0]) or not re.fullmatch("-[elx]*c", words[1]):
        return []
    script = words[2].replace("\\\n", " ").strip()
    if "\n" in script or not _PLAIN_WORDS.fullmatch(script):
        return []
    try:
        bare = shlex.split(script.removeprefix("exec "))
    except ValueError:
        return []
    if not bare or not _STARTS_TRAINING.fullmatch(bare[0]):
        return []  # a variable before the command, or a shell builtin
    notes.append(f"the command's shell was left out, so that the command begins with {bare[0]}")
    return bare


def _words(container: Mapping[str, Any]) -> list[str]:
    words = (*(container.get("command") or ()), *(container.get("args") or ()))
    return list(map(str, words))


def _gpus(container: Mapping[str, Any]) -> str:
    limits = (container.get("resources") or {}).get("limits") or {}
    return str(limits.get(GPU, ""))
