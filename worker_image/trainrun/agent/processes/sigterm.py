"""SIGTERM for one training process.

Layer: agent, leaf. It goes to the process alone, as a kubelet's does, and not to its group: the
helpers of a DataLoader would die of it, and the training of that. But a shell dies of it at once
and hands nothing on, so the command that it waits for gets the signal in its place.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from trainrun.agent.processes.children import children_of

SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh", "busybox"})
PROC = Path("/proc")


def send(pid: int) -> None:
    """Send SIGTERM to whom a process stands for; one that has just ended needs none."""
    for receiver in receivers(pid):
        try:
            os.kill(receiver, signal.SIGTERM)
        except ProcessLookupError:
            pass


def receivers(pid: int) -> Iterator[int]:
    """The process, or instead of a shell without a trap the commands that it waits for."""
    commands = children_of(pid) if _hands_nothing_on(pid) else []
    if not commands:
        yield pid
    for command in commands:
        yield from receivers(command)


def _hands_nothing_on(pid: int) -> bool:
    try:
        status = (PROC / str(pid) / "status").read_text()
    except OSError:
        return False
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    catches = int(fields.get("SigCgt", "0"), 16) >> (signal.SIGTERM - 1) & 1
    return fields.get("Name") in SHELLS and not catches
