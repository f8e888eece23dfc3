"""Waiting for what a round leaves behind, so that the next one does not pay for it.

Pods that are gone from the API may still have processes: containers are killed and taken apart
after the pod's grace, which costs half as much as starting them. Then the kernel tidies up their
networks and cgroups, and the control plane what else was in their namespace.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.local_job import machine_cpu

PATIENCE = 120.0
"""Seconds after which something else must be wrong."""
CALM = 0.15
"""Share of the machine's CPU; an idle cluster of three nodes takes about 0.07 of two cores."""
RESTLESS = 40.0
"""Seconds after which it is not the round before that keeps the machine busy."""


def sandboxes() -> int:
    """How many pods there are on all nodes of this machine: each has one process called `pause`."""
    return sum(name == "pause" for name in map(_name, Path("/proc").glob("[0-9]*/comm")))


def wait_for_sandboxes(number: int) -> None:
    """Wait until there are no more than `number`."""
    deadline = time.monotonic() + PATIENCE
    while sandboxes() > number:
        if time.monotonic() > deadline:
            raise SystemExit(f"{sandboxes()} pods are left, and there were {number}")
        time.sleep(0.2)


def wait_until_calm() -> None:
    """Wait until the machine does little more than a cluster does that has nothing to do.

    Not for ever: where other work goes on, the figures are those of a busy machine.
    """
    deadline = time.monotonic() + RESTLESS
    share = 1.0
    while share > CALM and time.monotonic() < deadline:
        before = machine_cpu()
        time.sleep(2.0)
        busy, total = (now - then for now, then in zip(machine_cpu(), before, strict=True))
        share = busy / total


def _name(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""  # it has ended
