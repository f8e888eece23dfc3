"""What the kernel does with our processes: it kills them for memory, or with their parent.

Layer: leaf, of the agent and of tasks. The counters of the memory cgroup, of both versions, say
whether it killed, and how full it is. A rise of the counter is used up by the first death that it
explains: of two ranks that die one after the other, one ran out of memory and the other lost its
peer.

What a process is to its parent and its orphans is said by prctl(2), by way of ctypes. Process 1 of
a container needs nothing of it. It is resolved at import, because the code that runs between fork
and exec must not look anything up: another thread may have held a lock while we forked.
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
"""Bytes above which a limit means none: version 1 says it with a huge number."""


class OomCounter:
    """Remembers the last value of the counter; without a memory cgroup it never rises."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._last = self._read()

    def rose(self) -> bool:
        """Say whether the kernel killed for memory since the last call."""
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
    """Return the file with this process's `oom_kill` counter; None where there is none."""
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
        # In a container the cgroup file system is mounted at our own group: its root is ours.
        for file in (base / path.lstrip("/") / name, base / name):
            if file.exists():
                return file
    return None


def memory_used(counter: Path | None) -> float | None:
    """The part of its limit that the cgroup of this counter has in use, without what the kernel
    would take back at once, caches of files that nobody used lately; None: there is no limit, or
    nobody knows."""
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
        return max(used - idle, 0) / limit if 0 < limit < UNLIMITED else None
    return None


def memory_of(pid: int) -> int:
    """Bytes of memory of a process, shared pages counted in part; 0: nobody knows."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith("Pss:"))
    return int(next(found, "0")) * 1024


def become_subreaper() -> None:
    """Orphaned descendants become our children, as they are process 1's in a container."""
    _checked(PR_SET_CHILD_SUBREAPER, 1)


def signal_on_parent_death(number: int) -> None:
    """Ask for a signal when the thread that started us ends; misses one that is dead already."""
    _checked(PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int) -> Callable[[], None]:
    """Return what a child of `parent` runs between fork and exec, to be killed with its parent."""

    def before_exec() -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked: nobody will signal us
            os._exit(1)

    return before_exec


def _checked(option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
