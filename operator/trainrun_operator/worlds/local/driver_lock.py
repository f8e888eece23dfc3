"""One process at a time leads a local run.

Layer: worlds/local. The lock is a flock that the kernel releases when its holder dies, however it
dies: a dead leader is followed at once. The file's content only serves to name the holder.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from trainrun.errors import TrainRunError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class AlreadyLed(TrainRunError):
    """Another process leads this run; the message names its pid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The process that holds a lock, or held it last."""

    pid: int
    started: int
    """Clock ticks since boot: with the pid and the boot it names one process for ever."""
    boot: str
    host: str

    @property
    def alive(self) -> bool:
        """Whether it still runs on this machine."""
        return self.boot == _boot_id() and start_time(self.pid) == self.started


class DriverLock:
    """Held for the life of a `trainrun run`."""

    def __init__(self, file: TextIO, *, before: Leader | None) -> None:
        self._file = file
        self.before = before
        """Who held it last and did not release it: it died."""

    def release(self) -> None:
        """Give the lock back in order."""
        self._file.seek(0)
        self._file.truncate()
        self._file.close()


def acquire(path: Path, *, run: str) -> DriverLock:
    """Take the lock of this run. Raises AlreadyLed while another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The descriptor is not inherited by agents: a living agent must not keep a dead leader's lock.
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _read(file)
        file.close()
        raise AlreadyLed(_refusal(run, holder)) from None
    before = _read(file)
    file.seek(0)
    file.truncate()
    me = {
        "pid": os.getpid(),
        "started": start_time(os.getpid()),
        "boot": _boot_id(),
        "host": socket.gethostname(),
    }
    file.write(json.dumps(me))
    file.flush()
    return DriverLock(file, before=before)


def _refusal(run: str, holder: Leader | None) -> str:
    if holder is None:
        return f"run {run} is just being started by another process: try again"
    return (
        f"run {run} is being led by process {holder.pid} on {holder.host}: wait for it, or stop it "
        f"with `kill {holder.pid}` (it saves a checkpoint first)"
    )


def leader_of(path: Path) -> Leader | None:
    """Who leads the run whose lock this is; None when nobody does."""
    try:
        with path.open() as file:
            leader = _read(file)
    except FileNotFoundError:
        return None
    return leader if leader is not None and leader.alive else None


def _read(file: TextIO) -> Leader | None:
    file.seek(0)
    try:
        data = json.loads(file.read())
        return Leader(
            pid=data["pid"], started=data["started"], boot=data["boot"], host=data["host"]
        )
    except (ValueError, KeyError, TypeError):
        return None


def start_time(pid: int) -> int | None:
    """When this process started, in clock ticks since boot; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in parentheses and may hold anything; field 22 counts from 1.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _boot_id() -> str:
    return BOOT_ID.read_text().strip()
