"""How much memory the processes of a group use.

Layer: tasks, leaf. Pages that several processes share, as forked ones do, are shared out among
them: counted for each, they would make a healthy task look too large.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")


def groups() -> dict[int, list[int]]:
    """Return the processes of each process group."""
    found: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # "pid (name) state ppid pgrp ...": the name may hold anything.
                stat = (entry / "stat").read_bytes()
                found.setdefault(int(stat.rpartition(b")")[2].split()[2]), []).append(
                    int(entry.name)
                )
    return found


def memory_of(pids: list[int], limit: int) -> int:
    """Return the bytes that these use: roughly while they are below the limit for sure."""
    roughly = sum(map(_resident, pids))
    return roughly if roughly <= limit else sum(map(_share, pids))


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _share(pid: int) -> int:
    with suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return _resident(pid)  # it has just ended, or a kernel from before 2017
