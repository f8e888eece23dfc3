"""Ends every process that belongs to a worker's folder, wherever it hides.

Layer: worlds/local. Agents and all that they start carry the folder in their environment, so that
nothing has to be recorded: processes of a dead leader, of a killed agent and grandchildren in
sessions of their own are found alike, and no pid that was used again is ever hit.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainrun.contract import variables

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


def has_any(folder: Path) -> bool:
    """Whether a process of the worker folder, or of the folders below, runs."""
    return any(True for _ in _processes(folder))


def signal_child(
    number: signal.Signals, parent: int, folder: Path, *, rank: int, if_: Callable[[], bool]
) -> None:
    """Signal the training process of `rank` that the agent `parent` of this folder has started.

    Nothing where none runs; `if_` is asked just before. A standby of the rank is left alone.
    """
    for pid, handle in _processes(folder, f"{variables.RANK}={rank}".encode()):
        if _parent_of(pid) == parent and not _stands_by(pid) and if_():
            signal.pidfd_send_signal(handle, number)


def _kill_once(folder: Path) -> Iterator[int]:
    for pid, handle in _processes(folder):
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            continue
        yield pid


def _processes(folder: Path, *marks: bytes) -> Iterator[tuple[int, int]]:
    """(pid, pidfd) of the processes of a folder, or of those below, with this in their environment.

    The pidfd is open until the next one is asked for.
    """
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
            if _belongs(pid, folder, marks):
                yield pid, handle
        finally:
            os.close(handle)


def _belongs(pid: int, folder: Path, marks: tuple[bytes, ...]) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False  # ended, or another user's
    mark = f"{variables.NODE_FOLDER}={folder}".encode()
    here = any(entry == mark or entry.startswith(mark + b"/") for entry in environ)
    return here and all(other in environ for other in marks)


def _stands_by(pid: int) -> bool:
    """By its name, since its environment stays what it was started with."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
        return name == variables.STANDBY_NAME
    except OSError:
        return False


def _parent_of(pid: int) -> int:
    """0 where it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    # "pid (name) state ppid ...": the name may hold anything, spaces and brackets too.
    return int(stat.rpartition(")")[2].split()[1])
