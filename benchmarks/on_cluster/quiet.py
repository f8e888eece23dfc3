"""Waiting for what a round leaves behind: pods that are gone from the API may still have processes.

An ended pod's containers are killed and taken apart after its grace, which costs half as much as
starting them: a round must not pay for the one before.
"""

from __future__ import annotations

import time
from pathlib import Path

PATIENCE = 120.0
"""Seconds after which something else must be wrong."""


def sandboxes() -> int:
    """How many pods there are on all nodes of this machine: each has one process called `pause`."""
    return sum(name == "pause" for name in map(_name, Path("/proc").glob("[0-9]*/comm")))


def wait_for_sandboxes(number: int) -> None:
    """Wait until there are no more than `number`, and for what the kernel has to tidy up."""
    deadline = time.monotonic() + PATIENCE
    while sandboxes() > number:
        if time.monotonic() > deadline:
            raise SystemExit(f"{sandboxes()} pods are left, and there were {number}")
        time.sleep(0.2)
    time.sleep(3.0)


def _name(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""  # it has ended
