"""The wheel that is published, and fresh environments that it is installed into.

They ask the package index, or find everything in uv's cache.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = str(ROOT / "tools" / "uv")


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    (built,) = folder.glob("trainrun-*.whl")
    return built


def installed(wheel: Path, extra: str, folder: Path) -> Path:
    """The Python of a fresh environment with the wheel and one extra, in the locked versions."""
    run(UV, "venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    constraints = folder / "constraints.txt"
    constraints.write_text(locked_versions())
    run(
        UV, "pip", "install", "--quiet", "--python", python, "--constraints", constraints,
        f"{wheel}{extra}",
    )  # fmt: skip
    return python


def locked_versions() -> str:
    """requirements.lock without its hashes, which do not go with a wheel of our own."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return "\n".join(line.removesuffix("\\") for line in lines if line[:1].isalnum())


def names(python: Path) -> set[str]:
    listing = run(UV, "pip", "list", "--quiet", "--format", "freeze", "--python", python)
    return {line.partition("==")[0].lower() for line in listing.splitlines()}
