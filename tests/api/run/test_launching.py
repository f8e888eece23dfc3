"""Processes per worker: said by the spec, or by the torchrun that the command begins with."""

from __future__ import annotations

from typing import Any

import pytest

from trainrun_operator.api.pod_template import LONGEST_COMMAND, LONGEST_TEXT
from trainrun_operator.api.run.folder import FolderSpec
from trainrun_operator.api.run.launching import folder_problem, launching_of
from trainrun_operator.api.run.spec import WorkersSpec


def workers(
    command: str, *, processes: int | None = None, replicas: int = 2, **container: Any
) -> WorkersSpec:
    told = {"name": "worker", "command": command.split(), **container}
    spec: dict[str, Any] = {"replicas": replicas, "template": {"spec": {"containers": [told]}}}
    if processes is not None:
        spec["processesPerWorker"] = processes
    return WorkersSpec.model_validate(spec)


def gpus(number: object) -> dict[str, Any]:
    return {"limits": {"nvidia.com/gpu": number}}


@pytest.mark.parametrize(
    ("spec", "processes"),
    [
        (workers("python t.py"), 1),
        (workers("python t.py", processes=8), 8),
        (workers("torchrun t.py"), 1),
        (workers("torchrun t.py", processes=8), 8),
        (workers("torchrun --nproc-per-node 4 t.py"), 4),
        (workers("torchrun --nproc-per-node 4 t.py", processes=4), 4),
        (workers("torchrun --nproc-per-node gpu t.py", resources=gpus("8")), 8),
        (workers("torchrun --nproc-per-node auto t.py", resources=gpus(2), processes=2), 2),
        (workers("torchrun --nnodes 2 t.py"), 1),
        (workers("torchrun --nnodes 1:4 t.py"), 1),
        (workers("torchrun", args=["--nproc-per-node", "3", "t.py"]), 3),
        (
            workers("torchrun --nproc-per-node $(N) t.py", env=[{"name": "N", "value": "2"}]),
            2,
        ),
    ],
)
def test_a_worker_starts_as_many_processes_as_its_spec_or_its_torchrun_says(
    spec: WorkersSpec, processes: int
) -> None:
    found = launching_of(spec)
    assert (found.processes, found.problem) == (processes, "")


@pytest.mark.case(
    "nodes", "The command starts a launcher that TrainRun cannot replace", counted="a new run fails"
)
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            workers("torchrun --nproc-per-node 4 t.py", processes=2),
            "torchrun: --nproc-per-node is 4, but workers.processesPerWorker is 2; remove one "
            "of the two",
        ),
        (
            workers("torchrun --nproc-per-node gpu t.py", processes=2, resources=gpus(4)),
            "torchrun: --nproc-per-node is gpu (4), but workers.processesPerWorker is 2; "
            "remove one of the two",
        ),
        (
            workers("torchrun --nproc-per-node auto t.py"),
            "torchrun: --nproc-per-node is auto, but container worker has no GPU limit "
            "(resources.limits[nvidia.com/gpu]); write a number",
        ),
        (
            workers("torchrun --nproc-per-node 65 t.py"),
            "torchrun: --nproc-per-node is 65; a worker can have at most 64 processes",
        ),
        (
            workers("torchrun --nnodes 4 t.py"),
            "torchrun: --nnodes is 4, but workers.replicas is 2; they must agree",
        ),
        (
            workers("torchrun --nnodes 3:4 t.py"),
            "torchrun: --nnodes is 3:4, but workers.replicas is 2; they must agree",
        ),
        (
            workers(
                "torchrun --nproc-per-node $(N) t.py",
                env=[{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
            ),
            "torchrun: --nproc-per-node is '$(N)'; it must be a number, gpu or auto",
        ),
        (
            workers("accelerate launch t.py"),
            "accelerate launch starts processes itself, which TrainRun does here: write command: "
            "[python, train.py] (Accelerate detects its rank by itself), and set "
            "processesPerWorker to the number of processes per worker. Mixed precision and similar "
            "options would silently be off: set for instance ACCELERATE_MIXED_PRECISION=bf16 in "
            "env, and pass the settings of --use_fsdp, --use_deepspeed or a config file to "
            "Accelerator()",
        ),
    ],
)
def test_a_command_that_cannot_be_run_says_what_to_write_instead(
    spec: WorkersSpec, problem: str
) -> None:
    assert launching_of(spec).problem == f"the command of container worker cannot be run: {problem}"


HIDDEN = {"args": ["-c", "torchrun --nproc-per-node=2 t.py"]}


def test_a_launcher_in_a_shell_is_refused_where_it_would_make_several_trainings() -> None:
    """Two trainings wrote the same files, and the run succeeded."""
    assert launching_of(workers("bash", **HIDDEN)).problem == (
        "the command of container worker cannot be run: each of the 2 processes would start "
        "torchrun: 2 separate trainings that write the same files. Start the command with torchrun "
        "itself, without a shell or a wrapper, or set workers.independentRanks: true if each "
        "process should train alone"
    )
    assert launching_of(workers("bash", replicas=1, processes=4, **HIDDEN)).problem
    bare = launching_of(workers("fabric run --devices=2 t.py")).problem
    assert "cannot be run: each of the 2 processes would start fabric run: 2" in bare


def test_a_program_that_is_a_launcher_by_another_name_says_what_to_write() -> None:
    line = "llamafactory-cli train sft.yaml"
    assert launching_of(workers(line, resources=gpus(4))).problem == (
        "the command of container worker cannot be run: each of the 2 processes would start "
        "llamafactory-cli: 2 separate trainings that write the same files. Write "
        "python -m llamafactory.launcher with processesPerWorker, or set "
        "workers.independentRanks: true if each process should train alone"
    )
    assert launching_of(workers(line, resources=gpus(1))).problem == ""
    assert launching_of(workers(line, replicas=1, resources=gpus(4))).problem == ""
    spanning = [{"name": "NNODES", "value": "2"}]
    assert launching_of(workers(line, resources=gpus(4), env=spanning)).problem == ""
    fabric = launching_of(workers("litgpt finetune_lora x")).problem
    assert "Write --devices (processes per worker) and --num_nodes (workers), or" in fabric


def test_a_launcher_in_a_shell_runs_in_one_process_and_where_it_is_meant() -> None:
    assert launching_of(workers("bash", replicas=1, **HIDDEN)).problem == ""
    assert launching_of(workers("fabric run --devices=2 t.py", replicas=1)).problem == ""
    meant = workers("bash", **HIDDEN).model_copy(update={"independent_ranks": True})
    assert launching_of(meant).problem == ""
    spanning = [{"name": "PET_NNODES", "value": "2"}]
    assert launching_of(workers("bash", env=spanning, **HIDDEN)).problem == ""


def variables(*values: str) -> list[dict[str, str]]:
    return [{"name": f"E{at}", "value": value} for at, value in enumerate(values)]


DOUBLED = variables("x" * 16, *(f"$(E{at})$(E{at})" for at in range(40)))
"""1.5 KB that the CRD allows; written out, the last one has 16 TB."""


def test_variables_that_double_each_other_are_refused_and_fill_no_memory() -> None:
    """One such TrainRun, in any namespace, ended the operators of the whole cluster."""
    assert launching_of(workers("train $(E40)", env=DOUBLED)).problem == (
        "the command of container worker cannot be run: env[14].value would have more than 131072 "
        "characters once its references are replaced"
    )
    assert launching_of(workers("train", args=["a", "$(E13)$(E0)"], env=DOUBLED)).problem == (
        "the command of container worker cannot be run: args[1] would have more than 131072 "
        "characters once its references are replaced"
    )


def test_a_command_is_not_refused_for_variables_that_it_does_not_refer_to() -> None:
    env = [*DOUBLED, {"name": "N", "value": "2"}]
    found = launching_of(workers("torchrun --nproc-per-node $(N) t.py", env=env))
    assert (found.processes, found.problem) == (2, "")


def test_a_command_line_that_is_longer_than_linux_takes_is_refused_before_it_is_made() -> None:
    long = variables("x" * LONGEST_TEXT)
    fits = LONGEST_COMMAND // LONGEST_TEXT - 2
    assert launching_of(workers("t" + " $(E0)" * fits, env=long)).problem == ""
    assert launching_of(workers("t" + " $(E0)" * (fits + 1), env=long)).problem == (
        "the command of container worker cannot be run: command and args have more than 2097152 "
        "characters, with the env that they refer to"
    )


def with_template(**parts: Any) -> WorkersSpec:
    """`parts` of the pod's spec, but for `metadata` and `mounts`."""
    metadata, mounts = parts.pop("metadata", None), parts.pop("mounts", None)
    container = {"name": "worker", "command": ["train"], "volumeMounts": mounts}
    template = {"metadata": metadata, "spec": {"containers": [container], **parts}}
    return WorkersSpec.model_validate({"template": template})


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (with_template(metadata=["a"]), 'metadata: ["a"] is a list; a mapping is needed'),
        (
            with_template(metadata={"labels": ["a"]}),
            'metadata.labels: ["a"] is a list; a mapping is needed',
        ),
        (
            with_template(metadata={"annotations": "a"}),
            'metadata.annotations: "a" is a string; a mapping is needed',
        ),
        (with_template(volumes={"a": 1}), 'spec.volumes: {"a": 1} is a mapping; a list is needed'),
        (with_template(volumes=["a"]), 'spec.volumes[0]: "a" is a string; a mapping is needed'),
        (
            with_template(mounts=["a"]),
            'spec.containers[0].volumeMounts[0]: "a" is a string; a mapping is needed',
        ),
        (
            with_template(securityContext=1),
            "spec.securityContext: 1 is a number; a mapping is needed",
        ),
        (with_template(affinity="a"), 'spec.affinity: "a" is a string; a mapping is needed'),
        (
            with_template(affinity={"nodeAffinity": {REQUIRED: ["a"]}}),
            f'spec.affinity.nodeAffinity.{REQUIRED}: ["a"] is a list; a mapping is needed',
        ),
        (
            with_template(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": ["a"]}}}),
            f'spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]: "a" is a string; a '
            "mapping is needed",
        ),
        (
            with_template(affinity={"nodeAffinity": {PREFERRED: 1}}),
            f"spec.affinity.nodeAffinity.{PREFERRED}: 1 is a number; a list is needed",
        ),
        (
            with_template(metadata={"labels": ["a"]}, volumes=["a", "b", "c"]),
            'metadata.labels: ["a"] is a list; a mapping is needed; spec.volumes[0]: "a" is a '
            'string; a mapping is needed; spec.volumes[1]: "b" is a string; a mapping is needed',
        ),
    ],
)
def test_a_template_that_no_pod_can_be_made_from_is_named_by_its_field(
    spec: WorkersSpec, problem: str
) -> None:
    """Its user was told to report a bug: OperatorError, a TypeError of the operator."""
    assert launching_of(spec).problem == problem


def several(*names: str, init: tuple[str, ...] = ()) -> WorkersSpec:
    """Containers of these names, the first of which would be refused if it trained."""
    commands = [["accelerate", "launch", "t.py"], *(["python", "t.py"] for _ in names[1:])]
    made = [{"name": name, "command": words} for name, words in zip(names, commands, strict=True)]
    inits = [{"name": name, "restartPolicy": "Always"} for name in init]
    spec = {"containers": made, "initContainers": inits}
    return WorkersSpec.model_validate({"template": {"spec": spec}})


@pytest.mark.case(
    "nodes",
    "The template has several containers, and none is called worker",
    counted="a new run fails",
)
def test_of_several_containers_one_has_to_be_called_worker() -> None:
    """The log shipper stood first: it got the agent, and the run succeeded while the container
    pytorch had died."""
    assert launching_of(several("log-shipper", "pytorch")).problem == (
        'spec.containers: log-shipper, pytorch: none of these is named "worker"; rename the '
        "container that trains to worker"
    )
    assert launching_of(several("log-shipper", "worker")).problem == ""


def test_an_only_container_trains_whatever_its_name_and_its_native_sidecars() -> None:
    problem = launching_of(several("pytorch", init=("log-shipper",))).problem
    assert problem.startswith("the command of container pytorch cannot be run: accelerate launch")


def test_what_is_empty_in_a_template_is_no_problem() -> None:
    nothing = {"labels": [], "annotations": None}
    spec = with_template(metadata=nothing, volumes={}, affinity="", mounts=(), securityContext={})
    assert launching_of(spec).problem == ""


SAVES = FolderSpec(path="out", resume_args=("--resume", "{newest}"))


@pytest.mark.parametrize(
    ("folder", "spec", "problem"),
    [
        (None, workers("sh -c t.py"), ""),
        (SAVES, workers("python t.py", replicas=1), ""),
        (FolderSpec(path="out"), workers("sh -c t.py", replicas=1), ""),
        (SAVES, workers("sh t.sh", replicas=1), ""),
        (SAVES, workers("sh", replicas=1, args=["-ec", "t.py $TRAINRUN_RESUME_ARGS"]), ""),
        (SAVES, workers("python", replicas=1, args=["-c", "pass"]), ""),
        (
            SAVES,
            workers("/bin/bash", replicas=1, args=["-lc", "python t.py"]),
            "checkpoint.folder.resumeArgs would become $0 of bash -c. Write the command without a "
            'shell, or put "$TRAINRUN_RESUME_PATH" or $TRAINRUN_RESUME_ARGS into it',
        ),
        (SAVES, workers("python t.py"), ""),
    ],
)
def test_a_folder_is_refused_where_its_words_would_not_reach_the_script(
    folder: FolderSpec | None, spec: WorkersSpec, problem: str
) -> None:
    assert folder_problem(folder, spec) == problem
