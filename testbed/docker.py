"""What a machine with Docker does through Docker: tell whether it runs, and build base images."""

from __future__ import annotations

import functools
import shutil
from typing import TYPE_CHECKING

from testbed.shell import output, succeeds

if TYPE_CHECKING:
    from pathlib import Path


@functools.cache
def is_running() -> bool:
    """Whether a Docker daemon answers; asked once."""
    return shutil.which("docker") is not None and succeeds("docker", "info", timeout=20)


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
