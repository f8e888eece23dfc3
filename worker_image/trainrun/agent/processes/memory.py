"""How much of the container's memory is in use.

Layer: agent, leaf. Both cgroup versions; the memory that the kernel would take back at once, caches
of files that nobody used lately, does not count.
"""

from __future__ import annotations

from pathlib import Path

from trainrun import oom

FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
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
        for limit_name, used_name in FILES:
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


def find() -> Memory:
    """Of this process's cgroup."""
    return Memory(oom.find_counter())
