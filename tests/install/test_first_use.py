"""The first minutes of somebody who has installed `trainrun[cli]`, and nothing else."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.docs.documents import ROOT, commands_below
from tests.support.wheels import installed, names, run, wheel

__all__ = ["wheel"]


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `trainrun` in a bare environment."""
    return installed(wheel, "[cli]", tmp_path_factory.mktemp("bare") / "venv").parent


@pytest.fixture(scope="module")
def file(commands: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `trainrun init` writes."""
    folder = tmp_path_factory.mktemp("first")
    run(commands / "trainrun", "init", folder)
    return folder / "train.yaml"


@pytest.mark.parametrize("kind", ["torch", "huggingface", "lightning"])
def test_the_wheel_brings_the_examples_of_each_kind(
    kind: str, commands: Path, tmp_path: Path
) -> None:
    told = run(commands / "trainrun", "init", "--for", kind, tmp_path)

    assert "pip install 'trainrun[cli," in told
    assert f"trainrun run {tmp_path}/train.yaml" in told


def test_neither_torch_nor_kopf_comes_along(commands: Path) -> None:
    there = names(commands / "python")

    assert {"click", "pydantic", "kubernetes", "boto3"} <= there
    assert {"torch", "kopf", "numpy", "cryptography", "uvloop", "pytest"}.isdisjoint(there)


def test_the_first_commands_of_the_readme_end_as_its_picture_says(
    commands: Path, tmp_path: Path
) -> None:
    pip, *lines = commands_below(ROOT / "README.md", "# TrainRun")
    assert pip.startswith("pip install '.[cli]' ")
    for line in lines:
        program, *words = shlex.split(line, comments=True)
        done = subprocess.run(
            [commands / program, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )

    assert "Run first succeeded" in done.stdout
    assert "attempts     3, failures 2/3" in done.stdout


def test_a_run_whose_driver_was_killed_resumes_and_explains_itself(
    commands: Path, file: Path
) -> None:
    trainrun = commands / "trainrun"
    with subprocess.Popen(
        [trainrun, "run", file, "--json"], stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            event = json.loads(line)
            if event["event"] == "state" and (event.get("checkpoint") or 0) >= 20:
                break
        driver.kill()
    assert driver.returncode == -signal.SIGKILL

    told = run(trainrun, "run", file, "--fault", "kill rank=2 step=64")

    assert "succeeded" in told
    assert "failures 1/3" in told
    assert "rank 2 was killed by SIGKILL" in run(trainrun, "explain", file)


def test_a_drill_finds_nothing_wrong_with_the_first_script(commands: Path, file: Path) -> None:
    told = json.loads(run(commands / "trainrun", "drill", file, "--json"))

    assert told["exitCode"] == 0
