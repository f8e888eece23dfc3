"""All that podman needs, and Docker does not, to be what kind runs on.

Settings and images of our own, so that nobody's containers are touched and /etc stays as it is;
and a node image, since podman is for machines that may reach no registry.
"""

from __future__ import annotations

import os
import re
import resource
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import docker, packages
from testbed.errors import ClusterUnavailable
from testbed.node_image import node_image
from testbed.places import cache
from testbed.shell import output, succeeds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NEEDED = {
    **packages.NEEDED,
    "podman": "podman",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
}
# The defaults of Debian's podman ask for more than root without CAP_SYS_RESOURCE may have; of the
# runtimes, crun refuses cgroups of version 1. Only netavark lets nodes find each other by name.
_CONTAINERS = """
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "/run/trainrun-podman"
[storage.options.overlay]
# A mount of that folder on itself would stay when everything else is gone.
skip_mount_home = "true"
"""
_OF_A_NETWORK = re.compile(r"-N NETAVARK-[0-9A-F]{8,}$")


def settings() -> Mapping[str, str]:
    """The environment in which podman, and kind that calls it, use our settings."""
    folder = cache() / "podman"
    folder.mkdir(exist_ok=True)
    # Without CAP_SYS_RESOURCE runc may set no limit that podman had lowered before.
    files = _below(1 << 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    processes = _below(1 << 15, resource.getrlimit(resource.RLIMIT_NPROC)[1])
    contents = {
        "containers.conf": _CONTAINERS.format(folder=folder, files=files, processes=processes),
        "storage.conf": _STORAGE.format(folder=folder),
    }
    for name, content in contents.items():
        path = folder / name
        if not path.is_file() or path.read_text() != content:
            partial = path.with_name(f".{name}.{os.getpid()}")
            partial.write_text(content)
            partial.replace(path)
    return {
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "KIND_EXPERIMENTAL_PROVIDER": "podman",
    }


def prepare() -> None:
    """Install what is missing; ClusterUnavailable where that is not possible."""
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        raise ClusterUnavailable(
            f"kind needs Docker or, as root on Debian, podman; here {docker.why_not()}, and we are "
            "not root on Debian."
        )
    packages.install(_NEEDED)
    # kind mounts it into its nodes; a virtual machine whose kernel has no modules lacks it.
    Path("/lib/modules").mkdir(exist_ok=True)


def loaded_node_image() -> str:
    """The reference of the node image, which podman then has."""
    archive, name = node_image()
    environment = settings()
    if not succeeds("podman", "image", "exists", name, environment=environment):
        output("podman", "load", "--input", archive, timeout=600, environment=environment)
        _forget_older(name)
    return name


def _forget_older(newest: str) -> None:
    repository = newest.rpartition(":")[0]
    command = ("podman", "images", "--format", "{{.Repository}}:{{.Tag}}", repository)
    for name in output(*command, environment=settings()).split():
        if name != newest:
            # One that a cluster uses stays.
            succeeds("podman", "rmi", name, environment=settings())


def remove_chains() -> None:
    """Remove the rules that netavark keeps, where no network of anybody's podman has its own."""
    for table in ("filter", "nat"):
        if any(_OF_A_NETWORK.match(line) for line in _rules(table)):
            return
    for table in ("filter", "nat"):
        _remove_chains(table, _rules(table))


def _remove_chains(table: str, rules: Sequence[str]) -> None:
    for rule in rules:
        if re.match(r"-A (?!NETAVARK).* -j NETAVARK", rule):
            output("iptables", "-t", table, "-D", *shlex.split(rule)[1:])
    chains = [rule.split()[1] for rule in rules if rule.startswith("-N NETAVARK")]
    # They name each other.
    for what in ("-F", "-X"):
        for chain in chains:
            output("iptables", "-t", table, what, chain)


def _rules(table: str) -> list[str]:
    return output("iptables", "-t", table, "-S").splitlines()


def _below(most: int, limit: int) -> int:
    return most if limit == resource.RLIM_INFINITY else min(most, limit - 1)
