"""The kernel's view of our processes: out-of-memory kills, memory use, parents and orphans.

Layer: leaf, of the agent and of tasks. The files of the memory cgroup, of both versions, show
whether the kernel killed a process, and how full it is. The first death that a rise of the counter
explains uses it up: of two ranks that die one after the other, one ran out of memory and the other
lost its peer.

prctl(2), called through ctypes, ties a process to its parent and adopts orphans; process 1 of a
container needs neither. It is resolved at import, because code between fork and exec must not look
anything up: another thread may have held a lock during the fork.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
SELF_CGROUP = Path("/proc/self/cgroup")
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""Constants of <linux/prctl.h>."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4

MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
UNLIMITED = 1 << 60
"""Bytes above which a limit means none: version 1 writes a huge number."""


class OomCounter:
    """Remembers the last value of the counter; without a memory cgroup it never rises."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._last = self._read()

    def rose(self) -> bool:
        """Whether the kernel has killed for memory since the last call."""
        before, self._last = self._last, self._read()
        return self._last > before

    def _read(self) -> int:
        if self._file is None:
            return 0
        try:
            lines = self._file.read_text().splitlines()
        except OSError:
            return 0
        for line in lines:
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
        return 0


def find_counter(root: Path = CGROUP_ROOT, own: Path = SELF_CGROUP) -> Path | None:
    """Return the file with this process's `oom_kill` counter; None: there is none."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            base, name = root / "memory", "memory.oom_control"
        elif not controllers:
            base, name = root, "memory.events"
        else:
            continue
        # In a container the cgroup file system is mounted at our own group, so its root is ours.
        for file in (base / path.lstrip("/") / name, base / name):
            if file.exists():
                return file
    return None


def memory_used(counter: Path | None) -> float | None:
    """The part of its memory limit that the cgroup of this counter uses, without inactive file
    caches, which the kernel would reclaim at once; None: there is no limit, or it is unknown."""
    usage = _used_and_limit(counter)
    return usage and usage[0] / usage[1]


def memory_left(counter: Path | None) -> int:
    """Bytes that this machine, and the cgroup of this counter, have left for processes."""
    usage = _used_and_limit(counter)
    left = [max(usage[1] - usage[0], 0)] if usage else []
    lines = Path("/proc/meminfo").read_text().splitlines()
    left += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return min(left, default=0)


def _used_and_limit(counter: Path | None) -> tuple[int, int] | None:
    """Bytes; None: there is no limit, or it is unknown."""
    if counter is None:
        return None
    for limit_name, used_name in MEMORY_FILES:
        try:
            limit = int(counter.with_name(limit_name).read_text())
            used = int(counter.with_name(used_name).read_text())
            stat = counter.with_name("memory.stat").read_text()
        except (OSError, ValueError):  # the other version, or "max"
            continue
        fields = dict(line.partition(" ")[::2] for line in stat.splitlines())
        idle = int(fields.get("total_inactive_file", fields.get("inactive_file", "0")))
        return (max(used - idle, 0), limit) if 0 < limit < UNLIMITED else None
    return None


def memory_of(pid: int) -> int:
    """Bytes of memory of a process, shared pages counted proportionally; 0: unknown."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith("Pss:"))
    return int(next(found, "0")) * 1024


def become_subreaper() -> None:
    """Adopt orphaned descendants, as process 1 of a container does."""
    _checked(PR_SET_CHILD_SUBREAPER, 1)


def signal_on_parent_death(number: int) -> None:
    """Request a signal for the end of the thread that started us; misses one that has already
    ended."""
    _checked(PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int) -> Callable[[], None]:
    """Return a function that a child of `parent` runs between fork and exec, so that the kernel
    kills it with its parent."""

    def before_exec() -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl, so no signal will come
            os._exit(1)

    return before_exec


def _checked(option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
