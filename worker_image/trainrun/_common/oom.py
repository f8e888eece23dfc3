"""Did the kernel kill something of ours for memory? The counters of the memory cgroup.

Layer: leaf, of the agent and of tasks. Both cgroup versions. A rise of the counter is used up by
the first death that it explains: of two ranks that die one after the other, one ran out of memory
and the other lost its peer.
"""

from __future__ import annotations

from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
SELF_CGROUP = Path("/proc/self/cgroup")


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
