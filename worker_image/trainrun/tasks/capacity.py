"""How much a worker runs at once: its CPUs and GPUs.

Layer: tasks, leaf.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainrun.contract import variables
from trainrun.contract.environment import LOOPBACK, ProcessPlace

CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Of one rank."""

    cpus: float
    devices: tuple[str, ...] = ()
    """Its GPUs, as CUDA_VISIBLE_DEVICES names them."""


def capacity(place: ProcessPlace, environ: Mapping[str, str]) -> Capacity:
    """What this process may run at once: its share of the container's or the machine's CPUs, at
    least one, and of its GPUs.

    Raises ValueError where `TRAINRUN_TASKS_CPUS` is not a number above 0.
    """
    return Capacity(cpus=_cpus(place, environ), devices=_devices(place, environ))


def _cpus(place: ProcessPlace, environ: Mapping[str, str]) -> float:
    given = environ.get(variables.TASKS_CPUS)
    if given:
        if not re.fullmatch(r"\d+(\.\d+)?", given) or not float(given):
            raise ValueError(
                f"{variables.TASKS_CPUS} is {given!r}; set it to a number above 0, such as 4"
            )
        return float(given)
    # Where rank 0 is reached by loopback all workers share this machine.
    sharing = place.world_size if place.master_addr in LOOPBACK else place.local_world_size
    allowed = min(len(os.sched_getaffinity(0)), _quota(CGROUP))
    return max(1.0, allowed / sharing)


def _quota(cgroup: Path) -> float:
    """CPUs that the container's cgroup allows, of version 2 or 1."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (cgroup / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return float("inf")
    return int(limit) / int(period) if limit.isdigit() else float("inf")


def _devices(place: ProcessPlace, environ: Mapping[str, str]) -> tuple[str, ...]:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        numbers = (re.fullmatch(r"nvidia(\d+)", path.name) for path in Path("/dev").iterdir())
        names = [str(number) for number in sorted(int(it[1]) for it in numbers if it)]
    else:
        names = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    return tuple(names[place.local_rank :: place.local_world_size])
