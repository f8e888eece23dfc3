"""What importing costs, and what it leaves alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKER = ROOT / "worker_image"

PUBLIC = [
    "AgentLost",
    "AgentRefused",
    "Checkpoint",
    "CheckpointUnfinished",
    "Context",
    "FatalError",
    "ForeignLauncher",
    "NotTheTrainingProcess",
    "RetryError",
    "SaveRequest",
    "StagingFailed",
    "TrainRunError",
    "finish",
    "get_checkpoint",
    "get_context",
    "get_initial_checkpoint",
    "get_params",
    "long_section",
    "report",
    "should_save",
    "staging_directory",
]
"""The public API of the package that user code imports: changing it is a decision."""


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has after `statement`."""
    script = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    return {name.partition(".")[0] for name in json.loads(output.splitlines()[-1])}


def python_3_10() -> str | None:
    """An interpreter of the oldest Python that a worker image may have."""
    candidates = [
        shutil.which("python3.10"),
        *map(str, sorted(Path.home().glob(".pyenv/versions/3.10.*/bin/python3.10"))),
    ]
    for candidate in filter(None, candidates):
        # A shim may be there without the version behind it.
        if subprocess.run([candidate, "--version"], capture_output=True).returncode == 0:
            return candidate
    return None


@pytest.mark.parametrize("statement", ["import trainrun", "import trainrun.agent"])
def test_the_worker_side_loads_nothing_heavy(statement: str) -> None:
    loaded = loaded_by(statement)

    heavy = {"torch", "boto3", "botocore", "pydantic", "numpy", "asyncio", "aiohttp", "yaml"}
    assert loaded & heavy == set()
    assert "trainrun_operator" not in loaded


@pytest.mark.slow
@pytest.mark.parametrize("module", ["trainrun_operator.core.run.planner", "trainrun_operator.cli"])
def test_the_operator_side_loads_neither_torch_nor_kopf_nor_kubernetes(module: str) -> None:
    assert loaded_by(f"import {module}") & {"torch", "kopf", "kubernetes"} == set()


CLI = ROOT / "operator" / "trainrun_operator" / "cli"
OWN_EXTRAS = {"plot_page"}
"""Modules of the command line that say themselves which further extra they need."""


def brought_by(requirements: list[str]) -> set[str]:
    """The distributions that these requirements install, and what those need in turn."""
    found: set[str] = set()
    left = list(requirements)
    while left:
        named = re.match(r"[\w.-]+", left.pop())
        if named and (name := named[0].lower().replace("_", "-")) not in found:
            found.add(name)
            with contextlib.suppress(PackageNotFoundError):  # for another Python
                left += [needed for needed in requires(name) or [] if "extra ==" not in needed]
    return found


@pytest.mark.slow
def test_every_command_finds_what_it_imports_in_the_extra_cli() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["dependencies"] + project["optional-dependencies"]["cli"]
    commands = [
        ".".join(path.relative_to(CLI.parents[1]).with_suffix("").parts)
        for path in sorted(CLI.rglob("*.py"))
        if path.stem not in ("__init__", "__main__", *OWN_EXTRAS)
    ]
    homes = packages_distributions()

    loaded = loaded_by(f"import {', '.join(commands)}") - loaded_by("pass")

    needed = {homes[module][0].lower().replace("_", "-") for module in loaded & homes.keys()}
    needed -= {"trainrun"}
    assert needed - brought_by(extra) == set()
    assert {"kubernetes", "pydantic"} <= needed


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "drill", "explain"])
def test_without_a_cluster_a_command_loads_no_client_of_one(command: str) -> None:
    loaded = loaded_by(f"import trainrun_operator.cli.{command}")

    assert loaded & {"kubernetes", "kopf", "torch", "boto3"} == set()


def test_the_public_api_is_the_documented_one() -> None:
    import trainrun

    assert sorted(trainrun.__all__) == PUBLIC
    assert all(hasattr(trainrun, name) for name in PUBLIC)


@pytest.mark.slow
def test_the_worker_side_imports_on_the_oldest_python_of_a_worker_image() -> None:
    python = python_3_10()
    if python is None:
        pytest.skip("no Python 3.10 on this machine")
    names = [
        ".".join(path.relative_to(WORKER).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((WORKER / "trainrun").rglob("*.py"))
        # boto3, obstore, torch and frameworks are not there; __main__ would start an agent.
        if path.name
        not in (
            "s3.py",
            "cloud.py",
            "__main__.py",
            "accelerate.py",
            "cma_sampler.py",
            "lightning.py",
            "mlflow.py",
            "optuna_study.py",
            "transformers.py",
        )
        and "torch" not in path.parts
    ]
    stores = "trainrun.checkpoint.stores"
    needs_boto3 = {f"{stores}.{name}" for name in ("parts", "s3_errors", "signed_reads")}
    script = "; ".join(f"import {name}" for name in names if name not in needs_boto3)

    done = subprocess.run(
        [python, "-c", script],
        env={**os.environ, "PYTHONPATH": str(WORKER)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
