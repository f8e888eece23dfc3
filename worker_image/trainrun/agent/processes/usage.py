"""What processes use of the machine, as the kernel counts it: CPU, I/O, the container's memory.

Layer: agent, leaf. Of a process and all that it has started: descendants that have ended and were
waited for are booked with their parent; those that outlive their parent are nobody's any more. Of
memory both cgroup versions; what the kernel would take back at once, caches of files that nobody
used lately, does not count.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainrun._common import kernel
from trainrun.agent.processes.children import PROC, children_of

TICKS = os.sysconf("SC_CLK_TCK")
"""Of the kernel's clock, in a second."""

MOST = 256
"""Processes of a tree, and threads of a process, that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Up to a moment."""

    cpu: float = 0.0
    """Seconds of CPU time."""
    delayed: float = 0.0
    """Seconds for which its threads were ready to run, and another one had the CPU; 0 where the
    kernel does not count that."""
    io: int = 0
    """Bytes that were read and written, whatever from; 0 where that cannot be read."""

    def __add__(self, other: Usage) -> Usage:
        """Of two processes together."""
        return Usage(
            cpu=self.cpu + other.cpu,
            delayed=self.delayed + other.delayed,
            io=self.io + other.io,
        )


def usage_of(pid: int) -> Usage | None:
    """Of a process and its descendants; None: it has gone, or nobody may know."""
    root = _of_one(pid)
    if root is None:
        return None
    total, tree = root, children_of(pid)
    for number, child in enumerate(tree):  # it grows meanwhile
        found = _of_one(child)
        if found is None or number >= MOST:
            continue
        total += found
        tree += children_of(child)
    return total


def _of_one(pid: int) -> Usage | None:
    try:
        # The kernel cuts a name at 15 bytes, within a character too.
        stat = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # "pid (name) state ppid ...": the name may hold anything, spaces and brackets too.
    fields = stat.rpartition(")")[2].split()
    ticks = sum(map(int, fields[11:15]))  # utime, stime, and those of children waited for
    return Usage(cpu=ticks / TICKS, delayed=_delayed(pid), io=_io(pid))


def _delayed(pid: int) -> float:
    """Of its threads that live."""
    nanoseconds = 0
    try:
        for thread in islice((PROC / str(pid) / "task").iterdir(), MOST):
            nanoseconds += int((thread / "schedstat").read_text().split()[1])
    except (OSError, LookupError, ValueError):  # it ends, or the kernel does not count
        return nanoseconds / 1e9
    return nanoseconds / 1e9


def _io(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "io").read_text().splitlines()
    except OSError:  # not ours to read, or a kernel that does not count
        return 0
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    return int(found.get("rchar", "0")) + int(found.get("wchar", "0"))


MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
UNLIMITED = 1 << 60
"""Bytes above which a limit means none: version 1 says it with a huge number."""


class Memory:
    """Of the cgroup whose counter file this is; without one nothing is known."""

    def __init__(self, counter: Path | None) -> None:
        self._folder = counter.parent if counter is not None else None

    def used(self) -> float | None:
        """The part of the limit that is in use; None: there is no limit, or nobody knows."""
        if self._folder is None:
            return None
        for limit_name, used_name in MEMORY_FILES:
            try:
                limit = int((self._folder / limit_name).read_text())
                used = int((self._folder / used_name).read_text())
                stat = (self._folder / "memory.stat").read_text()
            except (OSError, ValueError):  # the other version, or "max"
                continue
            fields = dict(line.partition(" ")[::2] for line in stat.splitlines())
            idle = int(fields.get("total_inactive_file", fields.get("inactive_file", "0")))
            return max(used - idle, 0) / limit if 0 < limit < UNLIMITED else None
        return None


def find_memory() -> Memory:
    """Of this process's cgroup."""
    return Memory(kernel.find_counter())
