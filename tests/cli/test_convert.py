from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from trainrun_operator.api.loading import load_trainrun
from trainrun_operator.api.run.launching import launching_of
from trainrun_operator.cli.commands import trainrun
from trainrun_operator.cli.converting.gang import Fields

JOBS = Path(__file__).parent / "jobs"
KINDS = ("pytorchjob", "trainjob", "jobset")


def converted(path: Path, *options: str) -> Result:
    return CliRunner().invoke(trainrun, ["convert", str(path), *options])


def changed(name: str, folder: Path, *edits: tuple[str, str]) -> Path:
    """The job in `jobs/NAME.yaml` with other text."""
    text = (JOBS / f"{name}.yaml").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def spec_of(result: Result) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(result.stdout)["spec"]
    return spec


@pytest.mark.parametrize("name", KINDS)
def test_what_is_written_can_be_run(name: str) -> None:
    result = converted(JOBS / f"{name}.yaml", "--storage", "s3://bucket/runs")
    assert result.exit_code == 0, result.stderr
    run = load_trainrun(result.stdout, source=name)
    assert run.metadata.name == "digits"
    assert run.spec.storage.uri == "s3://bucket/runs"
    assert launching_of(run.spec.workers).problem == ""


def test_a_pytorchjobs_master_and_workers_are_one_gang() -> None:
    result = converted(JOBS / "pytorchjob.yaml")
    document = yaml.safe_load(result.stdout)
    assert document["metadata"] == {
        "name": "digits",
        "namespace": "team",
        "labels": {"team": "vision"},
    }
    spec = document["spec"]
    assert spec["workers"]["replicas"] == 3
    assert spec["workers"]["processesPerWorker"] == 2
    assert spec["failurePolicy"] == {"maxFailures": 5}
    assert (spec["activeDeadline"], spec["ttlAfterFinished"]) == ("3600s", "600s")
    template = spec["workers"]["template"]
    other, training = template["spec"]["containers"]
    assert training["name"] == "worker", "it was called pytorch"
    assert other["name"] == "logs"
    assert training["command"] == [
        *("torchrun", "--rdzv-backend=c10d", "train.py", "--epochs", "3"),
    ]
    assert template["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert template["metadata"] == {"annotations": {"sidecar.istio.io/inject": "false"}}


def test_what_a_pytorchjob_has_besides_is_listed_with_its_reason() -> None:
    assert converted(JOBS / "pytorchjob.yaml").stderr.splitlines() == [
        "note: metadata.labels[kueue.x-k8s.io/queue-name] was left out: Kueue does not queue "
        "TrainRuns",
        "note: containers[1].name: pytorch was renamed to worker, the name of the container that "
        "trains",
        "note: the command's shell was left out, so that the command begins with torchrun",
        "note: storage.uri: s3://my-bucket/runs is a placeholder; write where to store this run's "
        "checkpoints, and storage.credentialsSecretRef if a Secret holds the credentials",
        "note: spec.runPolicy.cleanPodPolicy was left out: retainFailedWorkers decides which pods "
        "of ended workers stay",
        "note: spec.runPolicy.schedulingPolicy.minAvailable was left out: all workers are placed "
        "or none; write schedulerName into the pod template",
        "note: spec.elasticPolicy.minReplicas was left out: a gang has a fixed size",
        "note: spec.elasticPolicy.rdzvBackend was left out: TrainRun does the rendezvous",
        "note: spec.pytorchReplicaSpecs.Master.restartPolicy was left out: TrainRun restarts "
        "processes and replaces pods, as failurePolicy allows",
        "note: spec.pytorchReplicaSpecs.Worker.restartPolicy was left out: TrainRun restarts "
        "processes and replaces pods, as failurePolicy allows",
    ]


def test_a_master_that_differs_from_the_workers_is_told(tmp_path: Path) -> None:
    path = changed("pytorchjob", tmp_path, ("template: *template", "template: {spec: {containers: "
                   "[{name: pytorch, image: other, command: [python, train.py]}]}}"))  # fmt: skip
    result = converted(path)
    (training,) = spec_of(result)["workers"]["template"]["spec"]["containers"]
    assert training["image"] == "other"
    assert (
        "note: spec.pytorchReplicaSpecs.Master.template was left out: the Workers' template "
        "differs and is used for all\n" in result.stderr
    )


def test_a_trainjobs_trainer_is_the_container_that_trains() -> None:
    result = converted(JOBS / "trainjob.yaml")
    spec = spec_of(result)
    assert spec["workers"] == {
        "replicas": 4,
        "processesPerWorker": 8,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "worker",
                        "image": "registry.example.com/train:1",
                        "command": ["torchrun", "train.py"],
                        "env": [{"name": "EPOCHS", "value": "3"}],
                        "resources": {"limits": {"nvidia.com/gpu": 8}},
                    }
                ]
            }
        },
    }
    assert spec["suspend"] is True
    assert spec["failurePolicy"] == {"maxFailures": 3}
    assert "note: failurePolicy.maxFailures: 3 is a default, because the job does" in result.stderr
    assert "note: spec.runtimeRef: this file lacks what the runtime torch-distributed adds" in (
        result.stderr
    )
    assert "note: spec.initializer.dataset.storageUri was left out: write an init" in (
        result.stderr
    )


def test_what_a_trainjob_takes_from_its_runtime_has_to_be_written_first(tmp_path: Path) -> None:
    path = changed("trainjob", tmp_path, ("    image: registry.example.com/train:1\n", ""))
    result = converted(path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        f"error: {path}: spec.trainer.image is missing: the job gets it from its runtime; write "
        "it into the file first\n"
    )


def test_all_pods_of_a_jobset_are_one_gang() -> None:
    result = converted(JOBS / "jobset.yaml")
    spec = spec_of(result)
    assert spec["workers"]["replicas"] == 4
    assert spec["failurePolicy"] == {"maxFailures": 2}
    assert "restartPolicy" not in spec["workers"]["template"]["spec"]
    assert (
        "note: metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology] was left out; "
        "write affinity" in result.stderr
    )
    assert "note: spec.failurePolicy.rules was left out: TrainRun restarts" in result.stderr
    left = "note: spec.replicatedJobs[0].template.spec.backoffLimit was left out: TrainRun"
    assert left in result.stderr


def test_jobs_of_a_jobset_that_differ_are_no_gang(tmp_path: Path) -> None:
    other = "  replicatedJobs:\n    - name: driver\n      template: {spec: {template: {}}}\n"
    path = changed("jobset", tmp_path, ("  replicatedJobs:\n", other))
    result = converted(path)
    assert result.exit_code == 2
    assert "driver, workers have pod templates that differ" in result.stderr


def test_a_number_of_nodes_that_contradicts_is_to_be_changed(tmp_path: Path) -> None:
    path = changed("jobset", tmp_path, ('value: "4"', 'value: "8"'))
    result = converted(path)
    assert result.exit_code == 1
    assert spec_of(result)["workers"]["replicas"] == 4
    assert result.stderr.endswith(
        "to be changed: the command of container train cannot be run: torchrun: --nnodes is 8, but "
        "workers.replicas is 4; they must agree\n"
    )


def test_which_container_of_a_jobset_trains_is_for_its_user_to_say(tmp_path: Path) -> None:
    beside = "containers:\n                - {name: logs, image: logs}\n"
    result = converted(changed("jobset", tmp_path, ("containers:\n", beside)))
    assert result.exit_code == 1
    assert result.stderr.endswith(
        'to be changed: spec.containers: logs, train: none of these is named "worker"; rename the '
        "container that trains to worker\n"
    )


@pytest.mark.parametrize(
    "script",
    [
        "pip install x && torchrun train.py",
        "torchrun train.py | tee log",
        "A=$HOME torchrun x.py",
        "OMP_NUM_THREADS=4 torchrun --nproc-per-node 2 train.py",
    ],
)
def test_a_shell_that_does_more_than_start_a_launcher_stays(script: str, tmp_path: Path) -> None:
    path = changed("pytorchjob", tmp_path, ("exec torchrun --rdzv-backend=c10d train.py --epochs 3",
                                            script))  # fmt: skip
    result = converted(path)
    training = spec_of(result)["workers"]["template"]["spec"]["containers"][1]
    assert training["command"] == ["bash", "-c", script]
    assert result.exit_code == 1
    assert "would start torchrun:" in result.stderr


def test_a_launcher_that_a_shell_may_start_is_named(tmp_path: Path) -> None:
    script = "if test -f x; then torchrun train.py; fi"
    path = changed("pytorchjob", tmp_path, ("exec torchrun --rdzv-backend=c10d train.py --epochs 3",
                                            script))  # fmt: skip
    result = converted(path)
    assert result.exit_code == 1
    assert "to be changed: the container's shell starts torchrun once per process" in (
        result.stderr
    )


def test_an_empty_script_of_a_shell_is_left_to_the_shell(tmp_path: Path) -> None:
    path = changed("pytorchjob", tmp_path, ("exec torchrun --rdzv-backend=c10d train.py --epochs 3",
                                            ""))  # fmt: skip
    result = converted(path)
    assert result.exit_code == 0
    assert spec_of(result)["workers"]["template"]["spec"]["containers"][1]["command"][2] == ""


@pytest.mark.parametrize(
    ("said", "command", "processes"),
    [
        ('nprocPerNode: "2"', "torchrun train.py", 2),
        ('nprocPerNode: "8"', "torchrun --nproc-per-node=4 train.py", None),
        ("nprocPerNode: auto", "torchrun train.py", 2),
        ("nprocPerNode: gpu", "torchrun train.py", 2),
        ("suspend: null", "torchrun train.py", 2),
        ("nprocPerNode: cpu", "torchrun train.py", None),
        ("nprocPerNode: auto", "python train.py", None),
    ],
)
def test_a_worker_has_as_many_processes_as_kubeflow_would_start(
    said: str, command: str, processes: int | None, tmp_path: Path
) -> None:
    path = changed(
        "pytorchjob",
        tmp_path,
        ('nprocPerNode: "2"', said),
        ("exec torchrun --rdzv-backend=c10d train.py --epochs 3", command),
    )
    result = converted(path)
    assert spec_of(result)["workers"].get("processesPerWorker") == processes
    noted = "note: spec.nprocPerNode: " in result.stderr
    assert noted == (said == "nprocPerNode: cpu" or "torchrun" not in command)


def test_empty_resources_are_no_gpus(tmp_path: Path) -> None:
    limits = "resources: {limits: {nvidia.com/gpu: 2}}"
    path = changed("pytorchjob", tmp_path, (limits, "resources:"), ('"2"', "auto"))
    result = converted(path)
    assert result.exit_code == 0
    assert "note: spec.nprocPerNode: auto: write the number of processes" in result.stderr


def test_a_gang_has_as_many_workers_as_a_job_has_pods_at_a_time(tmp_path: Path) -> None:
    few = changed("jobset", tmp_path, ("completions: 2", "completions: 1"), ('"4"', '"2"'))
    assert spec_of(converted(few))["workers"]["replicas"] == 2
    many = converted(changed("jobset", tmp_path, ("completions: 2", "completions: 5")))
    assert spec_of(many)["workers"]["replicas"] == 4
    assert (
        "note: spec.replicatedJobs[0].template.spec.completions: 5: all workers of a gang run at "
        "once, so only 2 of these become workers\n" in many.stderr
    )


def test_a_job_is_found_among_the_documents_of_its_file(tmp_path: Path) -> None:
    """A ConfigMap before it, the usual file, was refused."""
    path = tmp_path / "job.yaml"
    beside = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\n---\n"
    path.write_text(beside + (JOBS / "pytorchjob.yaml").read_text())
    result = converted(path)
    assert result.exit_code == 0
    assert spec_of(result) == spec_of(converted(JOBS / "pytorchjob.yaml"))
    assert "note: the ConfigMap in this file is not part of the TrainRun; apply" in result.stderr
    path.write_text("---\n".join((JOBS / f"{name}.yaml").read_text() for name in KINDS))
    assert "the file holds 3 jobs; put each into a file of its own" in converted(path).stderr


@pytest.mark.parametrize(
    ("command", "env", "named"),
    [
        ("python train.py --node $(JOB_COMPLETION_INDEX)", "", "JOB_COMPLETION_INDEX"),
        ("bash -c 'python t.py --nodes ${PET_NNODES}'", "", "PET_NNODES"),
        ("torchrun --nnodes=$(PET_NNODES) --nproc-per-node=1 t.py", "", ""),
        ("torchrun --node-rank=$(JOB_COMPLETION_INDEX) t.py", "", ""),
        ("torchrun t.py --first $(RANK)", "", "RANK"),
        ("python t.py $(PET_NNODES)", "{name: PET_NNODES, value: '2'}", ""),
        ("bash -c 'python t.py --rank $RANK'", "", ""),
        (
            "python t.py",
            "{name: X, valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['b/index']\"}}}",
            "b/index",
        ),
        ("python t.py", "{name: X, value: $(JOBSET_NAME)}", "JOBSET_NAME"),
    ],
)
def test_what_only_the_jobs_operator_fills_has_to_be_changed(
    command: str, env: str, named: str, tmp_path: Path
) -> None:
    words = str(shlex.split(command))
    path = changed(
        "pytorchjob",
        tmp_path,
        ('[bash, -c, "exec torchrun --rdzv-backend=c10d train.py --epochs 3"]', words),
        ("resources:", f"env: [{env}]\n              resources:"),
    )
    result = converted(path)
    told = f"to be changed: {named}: only the job's operator sets this" in result.stderr
    assert told == bool(named)


def with_command(command: str, folder: Path) -> Path:
    path = folder / "job.yaml"
    container = {"name": "pytorch", "image": "i", "command": shlex.split(command)}
    group = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    job = {"pytorchReplicaSpecs": {"Worker": group}}
    head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "job"}}
    path.write_text(yaml.safe_dump({**head, "spec": job}))
    return path


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        (
            "torchrun run_clm.py --save_steps 500 --output-dir=/out/clm/",
            {
                "path": "/out/clm",
                "newest": "checkpoint-*",
                "complete": ["*/trainer_state.json"],
                "resumeArgs": ["--resume_from_checkpoint", "{newest}"],
            },
        ),
        (
            "accelerate launch --num_processes 1 cv.py --checkpointing_steps 50 --output_dir out",
            {
                "path": "out",
                "newest": "step_*",
                "complete": ["*/random_states_0.pkl"],
                "resumeArgs": ["--resume_from_checkpoint", "{newest}"],
            },
        ),
        (
            "torchrun train.py /data --model vit --experiment e7",
            {
                "path": "output/train/e7",
                "newest": "last.pth.tar",
                "resumeArgs": ["--resume", "{newest}"],
            },
        ),
        (
            "python train.py --data coco.yaml --project runs --name one --weights ''",
            {
                "path": "runs/one",
                "newest": "weights/last.pt",
                "resumeArgs": ["--resume", "{newest}"],
            },
        ),
        (
            "yolo detect train data=a.yaml project=/runs name=one exist_ok=True",
            {
                "path": "/runs/one",
                "newest": "weights/last.pt",
                "resumeArgs": ["resume=True", "model={newest}"],
            },
        ),
        (
            "python -m open_clip_train.main --name a --logs /l",
            {
                "path": "/l/a/checkpoints",
                "newest": "epoch_*.pt",
                "resumeArgs": ["--resume", "latest"],
                "resumeArgsFrom": "SecondAttempt",
            },
        ),
        (
            "litgpt pretrain pythia-14m --out_dir out",
            {
                "path": "out",
                "newest": "step-*",
                "complete": ["*/lit_model.pth"],
                "resumeArgs": ["--resume", "{newest}/lit_model.pth"],
            },
        ),
        (
            "torchrun train.py config/gpt2.py --out_dir=out",
            {"path": "out", "resumeArgs": ["--init_from=resume"]},
        ),
        (
            "python main.py -a resnet50 /data",
            {
                "path": ".",
                "newest": "checkpoint.pth.tar",
                "resumeArgs": ["--resume", "{newest}"],
            },
        ),
        ("yolo detect train data=a.yaml project=runs name=one", None),
        ("torchrun train.py --output_dir out", None),
        ("python predict.py --experiment e7 --model vit", None),
        ("torchrun train.py --experiment e7", None),
        ("python main.py --hidden-a 3", None),
        ("python main.py -a 3", None),
        ("python trl/scripts/sft.py --save_steps 5 --output_dir out", None),
        ("python run_no_trainer.py --per_device_train_batch_size 8 --output_dir out", None),
        ("torchrun run_clm.py --save_steps 500 --output_dir $(OUT)", None),
        ("torchrun run_clm.py --save_steps 500 --output_dir ../out", None),
        ("torchrun run_clm.py --save_steps 500 --output_dir --seed 1", None),
    ],
)
def test_a_script_that_is_known_by_its_command_gets_its_folder_proposed(
    command: str, folder: dict[str, Any] | None, tmp_path: Path
) -> None:
    result = converted(with_command(command, tmp_path))
    spec = spec_of(result)
    assert spec.get("checkpoint", {}).get("folder") == folder
    assert ("progress" in spec) == (folder is not None)
    told = "note: checkpoint.folder and progress are proposals, because the command looks"
    assert (told in result.stderr) == (folder is not None)


@pytest.mark.parametrize(
    ("command", "line", "read"),
    [
        (
            "python -m open_clip_train.main --name a",
            "07:50:11 | INFO | Train Epoch: 2 [ 8/96 (8%)] Data (t): 0.1 Loss: 1.3 (1.4)",
            {"epoch": "2", "batch": "8", "batches": "96", "loss": "1.3"},
        ),
        (
            "litgpt pretrain pythia-14m --out_dir out",
            "Epoch 1 | iter 8 step 4 | loss train: 5.731, val: n/a | iter time: 9.01 ms (step)",
            {"step": "4", "loss": "5.731"},
        ),
    ],
)
def test_a_known_script_whose_steps_no_form_shows_gets_a_pattern(
    command: str, line: str, read: dict[str, str], tmp_path: Path
) -> None:
    (pattern,) = spec_of(converted(with_command(command, tmp_path)))["progress"]["patterns"]
    found = re.search(pattern["pattern"], line)
    assert found is not None
    assert found.groupdict() == read


def test_a_folder_that_the_workers_cannot_use_is_not_proposed(tmp_path: Path) -> None:
    command = "bash -c 'cd src && python train.py --out_dir=out'"
    result = converted(with_command(command, tmp_path))
    assert "checkpoint" not in spec_of(result)
    assert (
        "note: the command looks like nanoGPT, and its saves are not stored: checkpoint.folder."
        "resumeArgs would become $0 of bash -c. Write the command without a shell" in result.stderr
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "apiVersion: batch/v1\nkind: Job\n",
            "cannot convert batch/v1 Job; convert one of these: kubeflow.org/v1",
        ),
        ("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n", "metadata.name is missing"),
        (
            "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {}}",
            "the pod template has no containers",
        ),
        (
            "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: "
            "{pytorchReplicaSpecs: {Worker: {replicas: many, template: {}}}}}",
            "not a valid PyTorchJob: invalid literal for int()",
        ),
        (
            "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: "
            "{pytorchReplicaSpecs: {Worker: {replicas: .inf, template: {}}}}}",
            "not a valid PyTorchJob: cannot convert float infinity to integer",
        ),
        (
            "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: "
            "{pytorchReplicaSpecs: {Worker: {replicas: 3}, Master: {template: {}}}}}",
            "spec.pytorchReplicaSpecs.Worker.template is missing",
        ),
        ("- a\n", "the file holds a list"),
        ("a: b: c\n", "not valid YAML"),
    ],
)
def test_what_is_no_such_job_is_refused_with_what_is_wrong(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    result = converted(path)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert str(path) in result.stderr


def test_a_field_is_taken_or_listed() -> None:
    fields = Fields({"a": {"b": 1, "c": [2], "d": {}, "e": None, "f": []}, "g": 3})
    assert fields.take("a.b") == 1
    assert fields.take("a.b") is None
    assert fields.take("g.h") is None
    assert fields.left() == ["a.c", "g"]
