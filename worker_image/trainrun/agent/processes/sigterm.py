"""SIGTERM for one training process.

Layer: agent, leaf. It goes to the process alone, as a kubelet's does, and not to its group: the
helpers of a DataLoader would die of it, and the training of that. But a shell dies of it at once
and hands nothing on, so the command that it waits for gets the signal in its place.
"""

from __future__ import annotations

import os
import signal
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


def receivers(pid: int) -> list[int]:
    """The process, or instead of a shell without a trap the commands that it waits for.

    Of several, those that have a handler: of `python train.py | tee log` the training, which could
    not write its last words to a `tee` that is dead.
    """
    name, catches = _read(pid)
    commands = children_of(pid) if name in SHELLS and not catches else []
    found = [receiver for command in commands for receiver in receivers(command)]
    return [receiver for receiver in found if _read(receiver)[1]] or found or [pid]


def _read(pid: int) -> tuple[str, bool]:
    """The name of a process, and whether it has a handler for SIGTERM."""
    try:
        # The kernel cuts a name at 15 bytes, within a character too.
        status = (PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return "", False
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    catches = int(fields.get("SigCgt", "0"), 16) >> (signal.SIGTERM - 1) & 1
    return fields.get("Name", ""), bool(catches)
