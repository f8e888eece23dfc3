"""Each side installs without the other's dependencies, from the wheel that is published."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.wheels import installed, names, run, wheel

__all__ = ["wheel"]

pytestmark = pytest.mark.slow


def test_the_worker_side_needs_boto3_alone(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, "", tmp_path / "venv")

    assert names(python) == {
        "boto3",
        "botocore",
        "jmespath",
        "python-dateutil",
        "s3transfer",
        "six",
        "trainrun",
        "urllib3",
    }
    run(python, "-c", "import trainrun, trainrun.agent, trainrun.checkpoint.stores.s3")

    command = subprocess.run([python.parent / "trainrun", "--help"], capture_output=True, text=True)
    assert command.returncode == 2
    assert command.stderr == (
        "error: the `trainrun` command needs click, which is not installed; install it with "
        "all other requirements: pip install 'trainrun[cli]'\n"
    )


def test_the_operator_side_needs_no_torch(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, "[operator]", tmp_path / "venv")

    assert {"kopf", "kubernetes", "pydantic", "boto3"} <= names(python)
    assert {"torch", "numpy", "scikit-learn", "pytest"}.isdisjoint(names(python))
    run(python, "-c", "import trainrun_operator.cli, trainrun_operator.api.crd, trainrun")
    assert "Usage" in run(python.parent / "trainrun", "--help")
