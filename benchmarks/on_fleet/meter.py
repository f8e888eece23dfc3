"""What processes and the machine use, from /proc."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.local_job import cpu_seconds, machine_cpu

SATURATED = 0.9
"""Part of the machine's CPU time that is in use when latencies say nothing of the operator."""
YARDSTICK = 1_000_000
"""Turns of the loop by which figures of a machine whose speed changes can be compared."""


@dataclass(slots=True, kw_only=True)
class Meter:
    """From its making on: CPU seconds of some processes, and of everything."""

    ours: list[int]
    """Processes of the bench."""
    _began: float = field(default_factory=time.monotonic)
    _machine: tuple[float, float] = field(default_factory=machine_cpu)
    _before: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._before = {pid: cpu_seconds(pid) for pid in self.ours}

    @property
    def seconds(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began

    def cpu(self, pid: int) -> float:
        """CPU seconds of one process."""
        return cpu_seconds(pid) - self._before[pid]

    @property
    def busy(self) -> float:
        """Part of the machine's CPU time that was in use."""
        busy, total = machine_cpu()
        return (busy - self._machine[0]) / max(total - self._machine[1], 1e-9)

    @property
    def saturated(self) -> bool:
        """So much that latencies are those of the machine."""
        return self.busy >= SATURATED

    def others(self, alive: Iterable[int]) -> float:
        """Cores that processes used which are not the bench's."""
        busy, _ = machine_cpu()
        return (busy - self._machine[0] - sum(map(self.cpu, alive))) / self.seconds


def yardstick() -> float:
    """Milliseconds of CPU that a fixed loop in Python takes now."""
    began, total = time.thread_time(), 0
    for number in range(YARDSTICK):
        total += number & 3
    return 1000 * (time.thread_time() - began)


def megabytes(pid: int, what: str = "VmRSS") -> float:
    """Resident memory of a process; VmHWM: the most that it ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1000
