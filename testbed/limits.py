"""Limits of the kernel that several clusters on one machine run into."""

from __future__ import annotations

from pathlib import Path

INOTIFY_INSTANCES = 1024
"""Per user. A node's kubelet and containerd take some twenty; of Debian's 128 the third cluster's
containerd gets none and comes up without its CRI ("unknown service runtime.v1")."""

_FILE = Path("/proc/sys/fs/inotify/max_user_instances")


def raise_limits() -> None:
    """Raise what is too low. It stays raised: other clusters may rely on it by then."""
    if int(_FILE.read_text()) < INOTIFY_INSTANCES:
        _FILE.write_text(f"{INOTIFY_INSTANCES}\n")
