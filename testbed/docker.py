"""What a machine with Docker does through Docker: tell whether it runs, and build base images."""

from __future__ import annotations

import functools
import shutil
import subprocess
from typing import TYPE_CHECKING

from testbed.shell import output

if TYPE_CHECKING:
    from pathlib import Path

_ANSWER_SECONDS = 20


def is_running() -> bool:
    """Whether a Docker daemon answers; asked once."""
    return not why_not()


@functools.cache
def why_not() -> str:
    """Why Docker cannot be used, in words for people; empty when it can."""
    if shutil.which("docker") is None:
        return "there is no Docker"
    try:
        done = subprocess.run(
            ["docker", "info", "--format", "{{.ServerVersion}}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"Docker did not answer within {_ANSWER_SECONDS} s (restart it)"
    words = done.stderr.strip()
    if "permission denied" in words:
        return "you may not use Docker (`sudo usermod -aG docker $USER`, then log in again)"
    # `docker info` ends with 0 when only the client has answered.
    if done.returncode or not done.stdout.strip():
        return "Docker does not run"
    return ""


def build_base(target: Path, name: str, suite: str, packages: tuple[str, ...]) -> None:
    """Build the same base image as without Docker: Debian with these packages."""
    dockerfile = f"""
FROM debian:{suite}-slim
RUN apt-get update \\
 && apt-get install -y --no-install-recommends {" ".join(packages)} \\
 && rm -rf /var/lib/apt/lists/*
ENV LANG=C.UTF-8
CMD ["python3"]
"""
    output("docker", "build", "--tag", name, "-", text=dockerfile, timeout=1800)
    partial = target.with_name(f".{target.name}.partial")
    output("docker", "save", "--output", partial, name, timeout=600)
    partial.replace(target)
