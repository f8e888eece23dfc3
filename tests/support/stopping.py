"""Stopping a process by a signal."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.eventually import eventually


def stop(process: int) -> None:
    """Send SIGSTOP, and wait until it works: at the latest when the process would run again."""
    os.kill(process, signal.SIGSTOP)
    eventually(lambda: state(process) == "T", what=f"{process} has stopped")


def state(process: int) -> str:
    """One letter, as in proc_pid_stat(5)."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
