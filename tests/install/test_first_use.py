"""The first minutes of somebody who has installed `trainrun[cli]`, and nothing else."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.wheels import ROOT, installed, names, run, wheel

__all__ = ["wheel"]


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `trainrun` in a bare environment."""
    return installed(wheel, "[cli]", tmp_path_factory.mktemp("bare") / "venv").parent


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The README's run, with a storage of its own."""
    folder = tmp_path_factory.mktemp("first")
    for name in ("train.py", "trainrun.yaml"):
        shutil.copy(ROOT / "examples" / "first" / name, folder)
    made = folder / "trainrun.yaml"
    made.write_text(made.read_text().replace("file:///tmp/runs", (folder / "runs").as_uri()))
    return made


def test_neither_torch_nor_kopf_comes_along(commands: Path) -> None:
    there = names(commands / "python")

    assert {"click", "pydantic", "kubernetes", "boto3"} <= there
    assert {"torch", "kopf", "numpy", "cryptography", "uvloop", "pytest"}.isdisjoint(there)


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
