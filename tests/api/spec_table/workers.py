"""Rows about `spec.workers`, the pod template included."""

from __future__ import annotations

from tests.api.spec_table.rows import GONE, Case, bad, containers, ok

CONTAINERS = "spec.workers.template.spec.containers"
NO_PROGRAM = (
    f'{CONTAINERS}: the container that trains (named "worker", or the only one) needs a command or '
    "args that start the training, such as command: [python, train.py]"
)

TOO_MUCH = (
    "spec.workers.template.spec: command, args and env of all containers together must have at "
    "most 262144 characters; put what is larger into a ConfigMap or the image"
)


def variables(count: int) -> list[dict[str, str]]:
    """Together 65,536 characters each."""
    return [{"name": f"V{number}", "value": "x" * (65536 - 2)} for number in range(count)]


VALID = (
    Case(
        "256 KiB of environment but for the command",
        containers({"name": "worker", "command": ["./train"], "env": variables(3)}),
    ),
    ok("the smallest numbers", spec__workers__replicas=1, spec__checkpoint__keep=2),
    ok("the largest numbers", spec__workers__replicas=1024, spec__checkpoint__keep=1000),
    ok("64 processes per worker", spec__workers__processesPerWorker=64),
    ok("ranks that work apart", spec__workers__independentRanks=True),
    ok("an agent in the image", spec__workers__agent="InImage"),
    ok("a warm start", spec__workers__warmStart={}),
    ok("a warm start with modules", spec__workers__warmStart={"preload": ["torch", "a_b.c1"]}),
    Case("args alone", containers({"name": "main", "args": ["train.py"]})),
    Case(
        "a sidecar before the worker",
        containers({"name": "logs"}, {"name": "worker", "command": ["./train"]}),
    ),
    # The operator refuses it, with their names: see tests/api/run/test_launching.py.
    Case("nothing says which trains", containers({"name": "a"}, {"name": "b", "args": ["x"]})),
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
        "spec.workers.template.spec: is missing: The spec of a worker pod. TrainRun passes on "
        "fields that it does not read.",
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
        f'{CONTAINERS}[0].name: is missing: Its name. The container named "worker" trains, or '
        "the only one.",
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
    bad(
        "256 KiB of environment and a command",
        containers({"name": "worker", "command": ["./train"], "env": variables(4)}),
        TOO_MUCH,
    ),
    bad("an empty command", containers({"name": "worker", "command": [], "args": []}), NO_PROGRAM),
    bad(
        "only the sidecar runs something",
        containers({"name": "logs", "command": ["x"]}, {"name": "worker"}),
        NO_PROGRAM,
    ),
    bad("the only one has nothing", containers({"name": "a"}), NO_PROGRAM),
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
        "a warm start of nothing",
        {"spec.workers.warmStart": {"preload": []}},
        "spec.workers.warmStart.preload: is empty; at least 1 entry is needed",
    ),
    bad(
        "a warm start of something that is no module",
        {"spec.workers.warmStart": {"preload": ["torch", "my-package"]}},
        'spec.workers.warmStart.preload[1]: "my-package" is not allowed: it must be the name of a '
        "Python module such as torch or transformers",
    ),
    bad(
        "an agent from elsewhere",
        {"spec.workers.agent": "Sidecar"},
        "spec.workers.agent: \"Sidecar\" is not known; it must be 'Inject' or 'InImage'",
    ),
)
