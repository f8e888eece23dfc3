"""Ends every process that belongs to a worker's folder, wherever it hides.

Layer: worlds/local. Agents and all that they start carry the folder in their environment, so that
nothing has to be recorded: processes of a dead leader, of a killed agent and grandchildren in
sessions of their own are found alike, and no pid that was used again is ever hit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

NODE_VARIABLE = "TRAINRUN_NODE"
"""Environment variable with the worker's folder, inherited by all its processes."""

_ROUNDS = 50
_PAUSE = 0.02


def kill_all(folder: Path) -> int:
    """SIGKILL all processes of the worker folder, or of the folders below; wait until they ended.

    Returns how many there were. A process may fork while we look, hence the rounds (one second in
    all): each kills what is there, the last finds nothing.
    """
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(_kill_once(folder))
        if not found:
            break
        killed |= found
        time.sleep(_PAUSE)
    return len(killed)


def _kill_once(folder: Path) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        pid = int(entry.name)
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue  # ended, or a thread
        try:
            # Read after the handle was taken: the environment is that of the process we signal.
            if _belongs(pid, folder):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                yield pid
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)


def _belongs(pid: int, folder: Path) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False  # ended, or another user's
    mark = f"{NODE_VARIABLE}={folder}".encode()
    return any(entry == mark or entry.startswith(mark + b"/") for entry in environ.split(b"\0"))
