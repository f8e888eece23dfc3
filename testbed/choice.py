"""What a cluster is made of on this machine: kind with Docker or podman, or embedded processes."""

from __future__ import annotations

import functools
import os
from typing import Literal

from testbed import docker
from testbed.errors import ClusterUnavailable

VARIABLE = "CLUSTER"
"""`kind` or `embedded`; unset, it is kind where Docker answers."""
Choice = Literal["docker", "podman", "embedded"]


@functools.cache
def choice() -> Choice:
    """Made once; ClusterUnavailable where VARIABLE says something else."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "kind", "embedded"):
        raise ClusterUnavailable(f"{VARIABLE}={wanted}: there are `kind` and `embedded`.")
    if wanted != "embedded" and docker.is_running():
        return "docker"
    return "podman" if wanted == "kind" else "embedded"
