"""Splits this machine's GPUs among the workers, as the template asks for them.

Layer: worlds/local.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from trainrun.errors import InvalidSpec
from trainrun_operator.worlds.local.program import GPU, SPEC

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_here(environ: Mapping[str, str], *, dev: Path = Path("/dev")) -> list[int]:
    """Indices of the GPUs that this process may use."""
    visible = environ.get(VISIBLE)
    if visible is not None:
        return [int(part) for part in visible.split(",") if part.strip().isdigit()]
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in dev.glob("nvidia*"))
    return sorted(int(match[1]) for match in found if match)


def split_gpus(here: list[int], *, workers: int, per_worker: int) -> list[list[int]]:
    """For each slot its GPUs; empty lists where none are asked for or this machine has none.

    Raises InvalidSpec when there are some, but too few.
    """
    if per_worker == 0 or not here:
        return [[] for _ in range(workers)]
    if len(here) < workers * per_worker:
        raise InvalidSpec(
            f"{SPEC}.containers.resources.limits[{GPU}]: {workers} workers with {per_worker} each "
            f"need {workers * per_worker} GPUs, this machine offers {len(here)}; "
            f"use --replicas {len(here) // per_worker or 1} or fewer GPUs per worker"
        )
    return [here[slot * per_worker : (slot + 1) * per_worker] for slot in range(workers)]
