"""What the tasks of the benchmarks do. All sides import it, so it knows none of them."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path


def nothing(value: int) -> int:
    """An empty task."""
    return value


def begun(folder: str, kills: int) -> int:
    """Say when and as which process a try begins, and wait to be killed; the last one returns."""
    now = time.time()
    file = Path(folder, "begun")
    with file.open("a") as tries:
        tries.write(f"{now} {os.getpid()}\n")
    if len(file.read_text().splitlines()) <= kills:
        time.sleep(60)
    return kills


def megabytes(size: int, seed: int) -> tuple[bytes, float]:
    """So many megabytes which cannot be compressed, and when they were there."""
    return random.Random(seed).randbytes(size * 1_000_000), time.time()


def peak() -> float:
    """The most memory that this process has had so far, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6
