"""One table of specs, good and bad: the models, the CRD and a real API server must agree on it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

BASE: dict[str, Any] = {
    "apiVersion": "trainrun.dev/v1alpha1",
    "kind": "TrainRun",
    "metadata": {"name": "digits"},
    "spec": {
        "workers": {
            "template": {
                "spec": {"containers": [{"name": "worker", "command": ["python", "train.py"]}]}
            }
        },
        "storage": {"uri": "s3://bucket/prefix"},
    },
}
"""The least a TrainRun needs."""

GONE = object()
"""Stands for: take the field out."""


def changed(changes: dict[str, object]) -> dict[str, Any]:
    """BASE with these dotted paths replaced, or taken out where the value is GONE."""
    document = copy.deepcopy(BASE)
    for path, value in changes.items():
        *parents, last = path.split(".")
        owner = document
        for key in parents:
            owner = owner.setdefault(key, {})
        if value is GONE:
            del owner[last]
        else:
            owner[last] = value
    return document


@dataclass(frozen=True, slots=True)
class Case:
    """A spec: the changes to BASE, and the problems, each `path: what a user reads`."""

    name: str
    changes: dict[str, object] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        return changed(self.changes)

    @property
    def paths(self) -> set[str]:
        return {problem.partition(": ")[0] for problem in self.problems}


def ok(name: str, /, **changes: object) -> Case:
    return Case(name, {path.replace("__", "."): value for path, value in changes.items()})


def bad(name: str, changes: dict[str, object], *problems: str) -> Case:
    return Case(name, changes, problems)


def containers(*entries: object) -> dict[str, object]:
    return {"spec.workers.template.spec.containers": list(entries)}


CONTAINERS = "spec.workers.template.spec.containers"
NO_PROGRAM = (
    f'{CONTAINERS}: the container that trains (named "worker", else the first) needs a command or '
    "args that start the training, such as command: [python, train.py]"
)
URI = "must be file:///absolute/path or s3://bucket/prefix"
DURATION = "must be a duration such as 90s, 1h30m or 500ms (units h, m, s, ms, in this order)"
DNS_LABEL = (
    "must consist of lower case letters, digits and dashes, and begin and end with a letter or "
    "digit"
)

VALID = (
    Case("the least"),
    ok("suspended", spec__suspend=True),
    ok("our own", spec__managedBy="trainrun.dev/operator"),
    ok("another controller's", spec__managedBy="kueue.example.com/multi/cluster-1"),
    ok("the longest name", metadata__name="a" * 48),
    ok("the smallest numbers", spec__workers__replicas=1, spec__checkpoint__keep=2),
    ok("the largest numbers", spec__workers__replicas=1024, spec__checkpoint__keep=1000),
    ok("64 processes per worker", spec__workers__processesPerWorker=64),
    ok("a folder", spec__storage__uri="file:///mnt/nfs/runs"),
    ok("a folder with a space", spec__storage__uri="file:///mnt/my runs"),
    ok("a bucket without a prefix", spec__storage__uri="s3://bucket"),
    ok("a bucket with dots", spec__storage__uri="s3://my.bucket-1/a/b/"),
    ok("a run name", spec__storage__runName="digits-2"),
    ok("an S3-compatible server", spec__storage__endpointURL="http://127.0.0.1:9000"),
    ok("a server with a path", spec__storage__endpointURL="https://host/storage/v1/s3"),
    ok("a region", spec__storage__region="eu-central-1"),
    ok("fail on existing", spec__storage__onExisting="Fail"),
    ok("credentials", spec__storage__credentialsSecretRef={"name": "s3-keys.team-a"}),
    ok("an agent in the image", spec__workers__agent="InImage"),
    ok("the shortest placement", spec__health__placementTimeout="10s"),
    ok("no failed workers kept", spec__retainFailedWorkers=0),
    ok("a hundred failed workers kept", spec__retainFailedWorkers=100),
    ok("initial weights", spec__checkpoint__initialFrom="s3://weights/base"),
    ok("one upload at a time", spec__checkpoint__maxPending=1),
    ok("16 uploads", spec__checkpoint__maxPending=16),
    ok("no flush", spec__checkpoint__flushTimeout="0s"),
    ok("a flush of an hour", spec__checkpoint__flushTimeout="1h"),
    ok("no limit of failures", spec__failurePolicy__maxFailures=-1),
    ok("a budget for preemptions", spec__failurePolicy__maxPreemptions=0),
    ok("no limit of preemptions", spec__failurePolicy__maxPreemptions=-1),
    ok("a constant backoff", spec__failurePolicy__backoff={"initial": "5s", "max": "5s"}),
    ok("a fractional factor", spec__failurePolicy__backoff={"factor": 1.5}),
    ok("a whole factor", spec__failurePolicy__backoff={"factor": 3}),
    ok("no backoff", spec__failurePolicy__backoff={"initial": "0s", "max": "0s"}),
    ok("milliseconds", spec__failurePolicy__backoff={"initial": "500ms", "max": "1s500ms"}),
    ok("the shortest heartbeat", spec__health__heartbeatTimeout="3s"),
    ok("a heartbeat in parts", spec__health__heartbeatTimeout="1m30s"),
    ok("seconds beyond a minute", spec__health__heartbeatTimeout="90s"),
    ok("a deadline", spec__activeDeadline="72h"),
    ok("the longest deadline", spec__activeDeadline="87600h"),
    ok("deleted at once", spec__ttlAfterFinished="0s"),
    ok("empty parts", spec__checkpoint={}, spec__failurePolicy={}, spec__health={}),
    ok("labels", metadata__labels={"team": "vision"}),
    Case("null means the default", {"spec.suspend": None, "spec.failurePolicy": None}),
    Case("null inside means the default", {"spec.failurePolicy.backoff": {"max": None}}),
    Case("args alone", containers({"name": "main", "args": ["train.py"]})),
    Case(
        "a sidecar before the worker",
        containers({"name": "logs"}, {"name": "worker", "command": ["./train"]}),
    ),
    Case("the first trains", containers({"name": "a", "command": ["x"]}, {"name": "b"})),
    Case(
        "what only Kubernetes reads",
        {
            "spec.workers.template.metadata": {"labels": {"a": "b"}},
            "spec.workers.template.spec.nodeSelector": {"gpu": "h100"},
        },
    ),
    Case(
        "environment and GPUs",
        containers(
            {
                "name": "worker",
                "image": "train:1",
                "command": ["python", "-m", "train"],
                "workingDir": "/src",
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "C"},
                ],
                "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "64Gi", "cpu": 0.5}},
            }
        ),
    ),
)

INVALID = (
    bad(
        "no workers",
        {"spec.workers": GONE},
        "spec.workers: is missing: The gang of workers.",
    ),
    bad(
        "no storage",
        {"spec.storage": GONE},
        "spec.storage: is missing: Where checkpoints and the records of the run are kept.",
    ),
    bad(
        "no uri",
        {"spec.storage": {"runName": "x"}},
        "spec.storage.uri: is missing: Folder for runs: s3://bucket/prefix, or file:///path on a "
        "file system that every node mounts. The server must be able to write an object only where "
        "none is. Cannot be changed.",
    ),
    bad("no spec", {"spec": GONE}, "spec: is missing: What the user asks for."),
    bad(
        "a null uri",
        {"spec.storage.uri": None, "spec.storage.endpointURL": "x"},
        "spec.storage.uri: is missing: Folder for runs: s3://bucket/prefix, or file:///path on a "
        "file system that every node mounts. The server must be able to write an object only where "
        "none is. Cannot be changed.",
        'spec.storage.endpointURL: "x" is not allowed: it must be http://host:port or '
        "https://host:port",
    ),
    bad(
        "a long name",
        {"metadata.name": "a" * 49},
        f'metadata.name: "{"a" * 49}" is longer than 48 characters',
    ),
    bad(
        "a name with capitals",
        {"metadata.name": "Digits"},
        f'metadata.name: "Digits" is not allowed: it {DNS_LABEL}',
    ),
    bad(
        "a name that ends with a dash",
        {"metadata.name": "digits-"},
        f'metadata.name: "digits-" is not allowed: it {DNS_LABEL}',
    ),
    bad(
        "an unknown field of the spec",
        {"spec.maxfailures": 3},
        "spec.maxfailures: unknown field; known here: activeDeadline, checkpoint, failurePolicy, "
        "health, managedBy, retainFailedWorkers, storage, suspend, ttlAfterFinished, workers",
    ),
    bad(
        "a misspelt field",
        {"spec.failurePolicy.maxFailurs": 3},
        "spec.failurePolicy.maxFailurs: unknown field; did you mean maxFailures?",
    ),
    bad(
        "a field in snake case",
        {"spec.failurePolicy.max_failures": 3},
        "spec.failurePolicy.max_failures: unknown field; did you mean maxFailures?",
    ),
    bad(
        "a controller without a domain",
        {"spec.managedBy": "other"},
        'spec.managedBy: "other" is not allowed: it must be a domain and a path such as '
        "example.com/controller",
    ),
    bad(
        "suspend as a string",
        {"spec.suspend": "yes"},
        'spec.suspend: "yes" is a string; true or false is needed',
    ),
    bad(
        "suspend as a mapping",
        {"spec.suspend": {}},
        "spec.suspend: {} is a mapping; true or false is needed",
    ),
    bad(
        "no replicas",
        {"spec.workers.replicas": 0},
        "spec.workers.replicas: 0 is less than 1",
    ),
    bad(
        "too many replicas",
        {"spec.workers.replicas": 1025},
        "spec.workers.replicas: 1025 is greater than 1024",
    ),
    bad(
        "replicas as a string",
        {"spec.workers.replicas": "4"},
        'spec.workers.replicas: "4" is a string; a whole number is needed',
    ),
    bad(
        "half a replica",
        {"spec.workers.replicas": 1.5},
        "spec.workers.replicas: 1.5 is a number; a whole number is needed",
    ),
    bad(
        "replicas as a truth",
        {"spec.workers.replicas": True},
        "spec.workers.replicas: true is true or false; a whole number is needed",
    ),
    bad(
        "no processes",
        {"spec.workers.processesPerWorker": 0},
        "spec.workers.processesPerWorker: 0 is less than 1",
    ),
    bad(
        "too many processes",
        {"spec.workers.processesPerWorker": 65},
        "spec.workers.processesPerWorker: 65 is greater than 64",
    ),
    bad(
        "workers as a list",
        {"spec.workers": []},
        "spec.workers: [] is a list; a mapping is needed",
    ),
    bad(
        "a template as text",
        {"spec.workers.template": "x"},
        'spec.workers.template: "x" is a string; a mapping is needed',
    ),
    bad(
        "a template without a spec",
        {"spec.workers.template": {}},
        "spec.workers.template.spec: is missing: The spec of a worker pod. Fields that TrainRun "
        "does not read itself are passed on.",
    ),
    bad(
        "no containers",
        {"spec.workers.template.spec": {}},
        f"{CONTAINERS}: is missing: The containers; one of them trains.",
    ),
    bad(
        "an empty list of containers",
        containers(),
        f"{CONTAINERS}: is empty; at least 1 entry is needed",
    ),
    bad(
        "too many containers",
        containers(*({"name": f"c{i}", "command": ["x"]} for i in range(33))),
        f"{CONTAINERS}: has 33 entries; 32 are allowed",
    ),
    bad(
        "a container without a name",
        containers({"command": ["x"]}),
        f'{CONTAINERS}[0].name: is missing: Its name. The container named "worker" trains, else '
        "the first one.",
    ),
    bad(
        "an empty container name",
        containers({"name": "", "command": ["x"]}),
        f"{CONTAINERS}[0].name: is empty",
    ),
    bad(
        "null among the words",
        containers({"name": "worker", "command": ["python", None]}),
        f"{CONTAINERS}[0].command[1]: null is nothing; a string is needed",
    ),
    bad("nothing to run", containers({"name": "worker"}), NO_PROGRAM),
    bad("an empty command", containers({"name": "worker", "command": [], "args": []}), NO_PROGRAM),
    bad(
        "only the sidecar runs something",
        containers({"name": "logs", "command": ["x"]}, {"name": "worker"}),
        NO_PROGRAM,
    ),
    bad(
        "the first has nothing", containers({"name": "a"}, {"name": "b", "args": ["x"]}), NO_PROGRAM
    ),
    bad(
        "a command as text",
        containers({"name": "worker", "command": "python train.py"}),
        f'{CONTAINERS}[0].command: "python train.py" is a string; a list is needed',
    ),
    bad(
        "a number among the words",
        containers({"name": "worker", "command": ["python", "train.py", 3]}),
        f"{CONTAINERS}[0].command[2]: 3 is a number; a string is needed",
    ),
    bad(
        "a number as a variable",
        containers({"name": "worker", "args": ["x"], "env": [{"name": "A", "value": 1}]}),
        f"{CONTAINERS}[0].env[0].value: 1 is a number; a string is needed",
    ),
    bad(
        "a list of limits",
        containers({"name": "worker", "args": ["x"], "resources": {"limits": []}}),
        f"{CONTAINERS}[0].resources.limits: [] is a list; a mapping is needed",
    ),
    bad(
        "a relative folder",
        {"spec.storage.uri": "file://runs"},
        f'spec.storage.uri: "file://runs" is not allowed: it {URI}',
    ),
    bad(
        "the root folder",
        {"spec.storage.uri": "file:///"},
        f'spec.storage.uri: "file:///" is not allowed: it {URI}',
    ),
    bad(
        "a plain path",
        {"spec.storage.uri": "/mnt/runs"},
        f'spec.storage.uri: "/mnt/runs" is not allowed: it {URI}',
    ),
    bad(
        "another scheme",
        {"spec.storage.uri": "gs://bucket/x"},
        f'spec.storage.uri: "gs://bucket/x" is not allowed: it {URI}',
    ),
    bad(
        "a bucket with capitals",
        {"spec.storage.uri": "s3://Bucket/x"},
        f'spec.storage.uri: "s3://Bucket/x" is not allowed: it {URI}',
    ),
    bad(
        "a line break at the end",
        {"spec.storage.uri": "s3://bucket\n"},
        f'spec.storage.uri: "s3://bucket\\n" is not allowed: it {URI}',
    ),
    bad(
        "a query",
        {"spec.storage.uri": "s3://bucket/x?versionId=1"},
        f'spec.storage.uri: "s3://bucket/x?versionId=1" is not allowed: it {URI}',
    ),
    bad(
        "a long uri",
        {"spec.storage.uri": "s3://bucket/" + "a" * 1013},
        'spec.storage.uri: "s3://bucket/' + "a" * 64 + "... is longer than 1024 characters",
    ),
    bad(
        "a run name with a slash",
        {"spec.storage.runName": "a/b"},
        f'spec.storage.runName: "a/b" is not allowed: it {DNS_LABEL}',
    ),
    bad(
        "an empty run name",
        {"spec.storage.runName": ""},
        f'spec.storage.runName: "" is not allowed: it {DNS_LABEL}',
    ),
    bad(
        "an endpoint without a scheme",
        {"spec.storage.endpointURL": "127.0.0.1:9000"},
        'spec.storage.endpointURL: "127.0.0.1:9000" is not allowed: it must be http://host:port or '
        "https://host:port",
    ),
    bad(
        "a region with a space",
        {"spec.storage.region": "eu central"},
        'spec.storage.region: "eu central" is not allowed: it must be the name of a region such as '
        "eu-central-1",
    ),
    bad(
        "a secret with an underscore",
        {"spec.storage.credentialsSecretRef": {"name": "s3_keys"}},
        'spec.storage.credentialsSecretRef.name: "s3_keys" is not allowed: it must be the name of '
        "a Secret: lower case letters, digits, dashes and dots, and begin and end with a letter or "
        "digit",
    ),
    bad(
        "a secret that is not in a mapping",
        {"spec.storage.credentialsSecretRef": "s3-keys"},
        'spec.storage.credentialsSecretRef: "s3-keys" is a string; a mapping is needed; write '
        "credentialsSecretRef: {name: my-secret}",
    ),
    bad(
        "a secret without a name",
        {"spec.storage.credentialsSecretRef": {}},
        "spec.storage.credentialsSecretRef.name: is missing: Name of the Secret, at most 253 "
        "characters.",
    ),
    bad(
        "two containers of one name",
        containers({"name": "worker", "command": ["a"]}, {"name": "b"}, {"name": "worker"}),
        f"{CONTAINERS}[2]: has the name worker of another entry",
    ),
    bad(
        "a variable twice",
        containers(
            {"name": "w", "command": ["a"], "env": [{"name": "A"}, {"name": "B"}, {"name": "A"}]}
        ),
        f"{CONTAINERS}[0].env[2]: has the name A of another entry",
    ),
    bad(
        "two init containers of one name",
        {"spec.workers.template.spec.initContainers": [{"name": "a"}, {"name": "a"}]},
        "spec.workers.template.spec.initContainers[1]: has the name a of another entry",
    ),
    bad(
        "an agent from elsewhere",
        {"spec.workers.agent": "Sidecar"},
        "spec.workers.agent: \"Sidecar\" is not known; it must be 'Inject' or 'InImage'",
    ),
    bad(
        "a hasty placement",
        {"spec.health.placementTimeout": "9s"},
        'spec.health.placementTimeout: "9s" is not allowed: it must be between 10s and 24h',
    ),
    bad(
        "too many failed workers kept",
        {"spec.retainFailedWorkers": 101},
        "spec.retainFailedWorkers: 101 is greater than 100",
    ),
    bad(
        "another answer to what exists",
        {"spec.storage.onExisting": "Overwrite"},
        "spec.storage.onExisting: \"Overwrite\" is not known; it must be 'Resume' or 'Fail'",
    ),
    bad(
        "initial weights elsewhere",
        {"spec.checkpoint.initialFrom": "https://host/weights"},
        f'spec.checkpoint.initialFrom: "https://host/weights" is not allowed: it {URI}',
    ),
    bad(
        "a duration without a unit",
        {"spec.checkpoint.flushTimeout": "30"},
        f'spec.checkpoint.flushTimeout: "30" is not allowed: it {DURATION}',
    ),
    bad(
        "a duration as a number",
        {"spec.checkpoint.flushTimeout": 30},
        "spec.checkpoint.flushTimeout: 30 is a number; a string is needed",
    ),
    bad(
        "a long flush",
        {"spec.checkpoint.flushTimeout": "1h1ms"},
        'spec.checkpoint.flushTimeout: "1h1ms" is not allowed: it must be between 0s and 1h',
    ),
    bad(
        "no upload",
        {"spec.checkpoint.maxPending": 0},
        "spec.checkpoint.maxPending: 0 is less than 1",
    ),
    bad(
        "17 uploads",
        {"spec.checkpoint.maxPending": 17},
        "spec.checkpoint.maxPending: 17 is greater than 16",
    ),
    bad("keep one", {"spec.checkpoint.keep": 1}, "spec.checkpoint.keep: 1 is less than 2"),
    bad(
        "keep too many",
        {"spec.checkpoint.keep": 1001},
        "spec.checkpoint.keep: 1001 is greater than 1000",
    ),
    bad(
        "failures below no limit",
        {"spec.failurePolicy.maxFailures": -2},
        "spec.failurePolicy.maxFailures: -2 is less than -1; use -1 for no limit",
    ),
    bad(
        "absurdly many failures",
        {"spec.failurePolicy.maxFailures": 1_000_001},
        "spec.failurePolicy.maxFailures: 1000001 is greater than 1000000; use -1 for no limit",
    ),
    bad(
        "preemptions below no limit",
        {"spec.failurePolicy.maxPreemptions": -2},
        "spec.failurePolicy.maxPreemptions: -2 is less than -1; use -1 for no limit",
    ),
    bad(
        "a factor below one",
        {"spec.failurePolicy.backoff": {"factor": 0.5}},
        "spec.failurePolicy.backoff.factor: 0.5 is less than 1",
    ),
    bad(
        "a factor above ten",
        {"spec.failurePolicy.backoff": {"factor": 10.5}},
        "spec.failurePolicy.backoff.factor: 10.5 is greater than 10",
    ),
    bad(
        "a factor as a string",
        {"spec.failurePolicy.backoff": {"factor": "2"}},
        'spec.failurePolicy.backoff.factor: "2" is a string; a number is needed',
    ),
    bad(
        "max below initial",
        {"spec.failurePolicy.backoff": {"initial": "10s", "max": "5s"}},
        'spec.failurePolicy.backoff.max: "5s" is not allowed: it must not be shorter than '
        "backoff.initial",
    ),
    bad(
        "initial above the default max",
        {"spec.failurePolicy.backoff": {"initial": "2m"}},
        "spec.failurePolicy.backoff.max: must not be shorter than backoff.initial",
    ),
    bad(
        "a short heartbeat",
        {"spec.health.heartbeatTimeout": "2s999ms"},
        'spec.health.heartbeatTimeout: "2s999ms" is not allowed: it must be between 3s and 1h',
    ),
    bad(
        "no time to start",
        {"spec.health.startTimeout": "0s"},
        'spec.health.startTimeout: "0s" is not allowed: it must be between 1s and 24h',
    ),
    bad(
        "days",
        {"spec.activeDeadline": "3d"},
        f'spec.activeDeadline: "3d" is not allowed: it {DURATION}',
    ),
    bad(
        "units in another order",
        {"spec.activeDeadline": "30m1h"},
        f'spec.activeDeadline: "30m1h" is not allowed: it {DURATION}',
    ),
    bad(
        "a negative duration",
        {"spec.ttlAfterFinished": "-1s"},
        f'spec.ttlAfterFinished: "-1s" is not allowed: it {DURATION}',
    ),
    bad(
        "an empty duration",
        {"spec.ttlAfterFinished": ""},
        f'spec.ttlAfterFinished: "" is not allowed: it {DURATION}',
    ),
    bad(
        "a deadline beyond ten years",
        {"spec.activeDeadline": "87601h"},
        'spec.activeDeadline: "87601h" is not allowed: it must be between 1s and 87600h',
    ),
)


@dataclass(frozen=True, slots=True)
class Change:
    """An update of a stored object: changes to BASE before and after, and the paths refused."""

    name: str
    before: dict[str, object]
    after: dict[str, object]
    refused: frozenset[str] = frozenset()


CHANGES = (
    Change("nothing", {}, {}),
    Change("suspend", {}, {"spec.suspend": True}),
    Change("a controller kept", {"spec.managedBy": "a.b/c"}, {"spec.managedBy": "a.b/c"}),
    Change("a controller added", {}, {"spec.managedBy": "a.b/c"}, frozenset({"spec.managedBy"})),
    Change("a controller removed", {"spec.managedBy": "a.b/c"}, {}, frozenset({"spec.managedBy"})),
    Change(
        "a controller changed",
        {"spec.managedBy": "trainrun.dev/operator"},
        {"spec.managedBy": "a.b/c"},
        frozenset({"spec.managedBy"}),
    ),
    Change("more failures", {}, {"spec.failurePolicy.maxFailures": 5}),
    Change("a new image", {}, {"spec.workers.template.metadata": {"labels": {"v": "2"}}}),
    Change("the default written out", {}, {"spec.workers.replicas": 1}),
    Change("the default taken out", {"spec.workers.processesPerWorker": 1}, {}),
    Change("a region", {}, {"spec.storage.region": "eu-central-1"}),
    Change(
        "another place",
        {},
        {"spec.storage.uri": "s3://bucket/other"},
        frozenset({"spec.storage.uri"}),
    ),
    Change("another size", {}, {"spec.workers.replicas": 2}, frozenset({"spec.workers.replicas"})),
    Change(
        "the size taken out",
        {"spec.workers.replicas": 4},
        {},
        frozenset({"spec.workers.replicas"}),
    ),
    Change(
        "more processes",
        {},
        {"spec.workers.processesPerWorker": 2},
        frozenset({"spec.workers.processesPerWorker"}),
    ),
    Change("a name added", {}, {"spec.storage.runName": "x"}, frozenset({"spec.storage.runName"})),
    Change(
        "a name removed", {"spec.storage.runName": "x"}, {}, frozenset({"spec.storage.runName"})
    ),
    Change(
        "a name changed",
        {"spec.storage.runName": "x"},
        {"spec.storage.runName": "y"},
        frozenset({"spec.storage.runName"}),
    ),
    Change(
        "other initial weights",
        {"spec.checkpoint.initialFrom": "s3://weights/1"},
        {"spec.checkpoint.initialFrom": "s3://weights/2"},
        frozenset({"spec.checkpoint.initialFrom"}),
    ),
    Change(
        "initial weights added",
        {},
        {"spec.checkpoint.initialFrom": "s3://weights/1"},
        frozenset({"spec.checkpoint.initialFrom"}),
    ),
    Change("a name kept", {"spec.storage.runName": "x"}, {"spec.storage.runName": "x"}),
)
"""What may change and what not, appearing and going included."""
