"""Stopping a process by a signal."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path

from tests.support.eventually import eventually


def stop(process: int) -> None:
    """Send SIGSTOP, and wait until it works: at the latest when the process would run again."""
    os.kill(process, signal.SIGSTOP)
    eventually(lambda: state(process) == "T", what=f"{process} has stopped")


def stop_unlocked(process: int, path: Path) -> None:
    """Stop it at a moment at which it does not hold the lock of this file."""
    with path.open() as file:
        while True:
            stop(process)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.kill(process, signal.SIGCONT)
            else:
                return  # closing the file unlocks it


def state(process: int) -> str:
    """One letter, as in proc_pid_stat(5)."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
