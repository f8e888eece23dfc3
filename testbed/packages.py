"""The Debian packages that an embedded cluster stands on, installed where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import ClusterUnavailable
from testbed.places import progress

if TYPE_CHECKING:
    from collections.abc import Mapping

# What must be there -> the package that brings it.
NEEDED = {
    "etcd": "etcd-server",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "conntrack": "conntrack",
    "nft": "nftables",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "mmdebstrap": "mmdebstrap",
    "buildah": "buildah",
}
SUPERUSER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing(needed: Mapping[str, str] = NEEDED) -> list[str]:
    """The packages that are not there yet."""
    return sorted(package for what, package in needed.items() if not _is_there(what))


def _is_there(what: str) -> bool:
    if what.startswith("/"):
        return Path(what).exists()
    return shutil.which(what, path=SUPERUSER_PATH) is not None


def install(needed: Mapping[str, str] = NEEDED) -> None:
    """Install what is missing; needs root and apt, and nothing when all is there.

    Raises ClusterUnavailable where that is not possible.
    """
    packages = missing(needed)
    if not packages:
        return
    if shutil.which("apt-get") is None:
        raise ClusterUnavailable(
            f"these tools are missing: {', '.join(packages)} (their names in Debian). "
            "Install them, or start Docker to get the cluster from kind."
        )
    progress(f"installing Debian packages: {' '.join(packages)}")
    environment = {
        **os.environ,
        "DEBIAN_FRONTEND": "noninteractive",
        # etcd is started by us: the package must not start one of its own.
        "RUNLEVEL": "1",
    }
    for command in (
        ["apt-get", "update", "-q"],
        ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            raise ClusterUnavailable(
                f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[-1500:]}"
            )
