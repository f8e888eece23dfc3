"""The cgroups of a cluster's pods, in version 1, version 2, or both at once."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from testbed.errors import ClusterBroken

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


def hierarchies() -> list[Path]:
    """The mount points of all cgroup hierarchies."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in {"cgroup", "cgroup2"}:
            found.append(Path(where))
    return found


def make(cluster: str, node: str) -> None:
    """Make the cgroup `/CLUSTER/NODE` in every hierarchy; the kubelet wants to find it."""
    for hierarchy in hierarchies():
        folder = hierarchy / cluster / node
        folder.mkdir(parents=True, exist_ok=True)
        if hierarchy == _ROOT:  # version 2 alone: controllers are handed down one by one
            for parent in (hierarchy, hierarchy / cluster):
                for controller in _CONTROLLERS:
                    with contextlib.suppress(OSError):
                        (parent / "cgroup.subtree_control").write_text(f"+{controller}")


def remove(cluster: str, timeout: float = 20.0) -> None:
    """Remove the cluster's cgroups; their processes must have ended."""
    deadline = time.monotonic() + timeout
    while left := left_over(cluster):
        for folder in left:
            # Busy while the kernel still clears up after a process.
            with contextlib.suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            raise ClusterBroken(f"these cgroups did not go: {' '.join(map(str, left[:5]))}")


def left_over(cluster: str) -> list[Path]:
    """The cgroups of the cluster that are there right now, the deepest first."""
    return [
        folder
        for hierarchy in hierarchies()
        if (hierarchy / cluster).is_dir()
        for folder in [*_below(hierarchy / cluster), hierarchy / cluster]
    ]


def _below(folder: Path) -> list[Path]:
    found: list[Path] = []
    for child in folder.iterdir():
        if child.is_dir():
            found += [*_below(child), child]
    return found
