from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.nobody import as_nobody
from trainrun.errors import InvalidSpec
from trainrun_operator.worlds.local.program import (
    Program,
    gpus_here,
    program_of,
    split_gpus,
    with_interpreter,
)

WHERE = "spec.workers.template.spec.containers[0]"


def read(folder: Path, *, spec: dict[str, Any] | None = None, **container: Any) -> Program:
    (folder / "train.py").touch()
    described = {"name": "main", "command": ["python", "train.py"], **container}
    template = {"spec": {"containers": [described], **(spec or {})}}
    return program_of(template, folder=folder, environ=os.environ)


def problems(folder: Path, **container: Any) -> list[str]:
    with pytest.raises(InvalidSpec) as raised:
        read(folder, **container)
    return str(raised.value).splitlines()


def test_python_is_the_interpreter_that_runs_trainrun(tmp_path: Path) -> None:
    program = read(tmp_path, args=["--epochs", "3"])
    assert program.command == (sys.executable, "train.py", "--epochs", "3")
    assert program.working_dir == tmp_path


def test_the_container_named_worker_trains(tmp_path: Path) -> None:
    sidecar = {"name": "logs", "command": ["tail"]}
    worker = {"name": "worker", "command": ["true"]}
    template = {"spec": {"containers": [sidecar, worker], "volumes": [{"name": "v"}]}}
    program = program_of(template, folder=tmp_path, environ=os.environ)
    assert program.command == ("true",)
    assert program.notes == (
        "not used locally: volumes, containers other than the one that trains",
    )


def test_variables_are_put_in_as_the_kubelet_does(tmp_path: Path) -> None:
    env = [{"name": "N", "value": "3"}, {"name": "TWICE", "value": "$(N)$(N)"}]
    program = read(tmp_path, env=env, args=["$(TWICE)", "$$(N)", "$(OTHER)"])
    assert program.command[2:] == ("33", "$(N)", "$(OTHER)")


def test_variables_that_double_each_other_are_named_and_fill_no_memory(tmp_path: Path) -> None:
    values = ["x" * 16, *(f"$(E{at})$(E{at})" for at in range(40))]
    env = [{"name": f"E{at}", "value": value} for at, value in enumerate(values)]
    assert problems(tmp_path, env=env) == [
        f"{WHERE}.env[14].value: would have more than 131072 characters once its references are "
        "replaced"
    ]


def test_the_working_directory_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "main.py").touch()
    program = read(tmp_path, command=["python3", "main.py"], workingDir="code")
    assert program.working_dir == tmp_path / "code"


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        command=["python", "missing.py"],
        env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        envFrom=[{"secretRef": {"name": "s"}}],
        resources={"limits": {"nvidia.com/gpu": "one"}},
    )
    assert found == [
        f"{WHERE}.env[0].valueFrom: KEY is read from the cluster, which does not exist locally; "
        "remove the entry (the shell's variables are passed on) or give it a value",
        f"{WHERE}.envFrom: config maps and secrets do not exist locally; remove it (the shell's "
        "variables are passed on) or list the variables under env with values",
        f"{WHERE}.command: there is no script {tmp_path}/missing.py",
        f"{WHERE}.resources.limits[nvidia.com/gpu]: 'one' is not a number of GPUs",
    ]


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert problems(tmp_path, command=["no-such-program"]) == [
        f"{WHERE}.command: 'no-such-program' was not found on this machine (see PATH), or user "
        f"{os.geteuid()} may not execute it"
    ]


def closed_venv(folder: Path) -> list[str]:
    """Problems of an interpreter in a folder that may not be looked into."""
    (folder / "venv" / "bin").mkdir(parents=True)
    (folder / "venv").chmod(0)
    try:
        return problems(folder, command=["venv/bin/python", "venv/bin/train.py"])
    finally:
        (folder / "venv").chmod(0o700)


@pytest.mark.slow
def test_an_interpreter_that_may_not_be_executed_is_named(tmp_path: Path) -> None:
    """It said that the storage's folder must be writable."""
    program, script = as_nobody(closed_venv, tmp_path)
    missing = f"{WHERE}.command: 'venv/bin/python' was not found on this machine (see PATH), or"
    assert program.startswith(missing)
    assert script == f"{WHERE}.command: there is no script {tmp_path}/venv/bin/train.py"


def test_a_working_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    found = problems(tmp_path, command=["true"], workingDir="/no/such")
    assert found == [f"{WHERE}.workingDir: there is no folder /no/such on this machine"]


def test_programs_beside_the_interpreter_come_first_on_path() -> None:
    here = str(Path(sys.executable).parent)
    assert with_interpreter({"PATH": "/usr/bin", "A": "1"}) == {
        "PATH": f"{here}:/usr/bin",
        "A": "1",
    }
    assert with_interpreter({})["PATH"] == f"{here}:{os.defpath}"


def test_gpus_are_split_among_the_workers() -> None:
    assert split_gpus([0, 1, 2, 3], workers=2, per_worker=2) == [[0, 1], [2, 3]]
    assert split_gpus([], workers=2, per_worker=2) == [[], []]
    assert split_gpus([0], workers=2, per_worker=0) == [[], []]


def test_too_few_gpus_are_an_error_that_says_what_would_fit() -> None:
    with pytest.raises(InvalidSpec) as raised:
        split_gpus([0, 1], workers=4, per_worker=1)
    assert "4 workers with 1 each need 4 GPUs, this machine has 2; use --replicas 2" in str(
        raised.value
    )


def test_the_gpus_of_this_machine_are_those_that_are_visible(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia3", "nvidiactl"):
        (tmp_path / name).touch()
    assert gpus_here({}, dev=tmp_path) == [0, 3]
    assert gpus_here({"CUDA_VISIBLE_DEVICES": "3"}, dev=tmp_path) == [3]
    assert gpus_here({"CUDA_VISIBLE_DEVICES": ""}, dev=tmp_path) == []
