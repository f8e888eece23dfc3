"""The driver lock: only one process at a time leads a local run.

Layer: worlds/local. The lock is a flock, which the kernel releases when its holder dies, so a dead
leader is replaced at once. A flock is not enough if the file is removed, or if it holds on one
machine only (NFS with nolock). So the holder writes its name and a growing beat into the file, and
recreates a missing file. A process that gets the lock but has reason to doubt it watches the file
for beats before it leads.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TextIO

from trainrun.checkpoint.ownership import LEASE
from trainrun.errors import TrainRunError
from trainrun_operator.worlds.local.worker import has_processes, stat_of

BEAT = 2.0
"""Seconds between two beats of the holder."""
DOUBT = 4 * BEAT
"""Seconds for which the file is watched if it is missing although the run was led before, or if its
last holder is alive."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger(__name__)


class AlreadyLed(TrainRunError):
    """Another process leads this run; the message names its pid if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The process that holds the lock, or held it last."""

    pid: int
    started: int
    """Clock ticks since boot. With pid and boot it identifies a process, though pids are reused."""
    boot: str
    host: str
    id: str = ""
    """A uuid of this driver."""
    beat: int = 0
    """Grows every BEAT seconds while it lives."""

    @staticmethod
    def this() -> Leader:
        """This process."""
        pid = os.getpid()
        started = start_time(pid) or 0
        host, own = socket.gethostname(), str(uuid.uuid4())
        return Leader(pid=pid, started=started, boot=_boot_id(), host=host, id=own)

    @property
    def elsewhere(self) -> bool:
        """Whether it ran on another machine or boot, so that we cannot see if it is alive."""
        return (self.boot, self.host) != (_boot_id(), socket.gethostname())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def alive(self) -> bool:
        """Whether it is running on this machine."""
        return self.boot == _boot_id() and start_time(self.pid) == self.started


class DriverLock:
    """The lock of a `trainrun run`; a thread writes beats until it is released."""

    def __init__(self, path: Path, file: TextIO, *, before: Leader | None) -> None:
        self._path = path
        self._file = file
        self._me = Leader.this()
        self.before = before
        """The last holder if it died without releasing the lock; None: there is none."""
        self._released = threading.Event()
        _write(file, self._me)
        os.fsync(file.fileno())  # for other machines; beats need no fsync
        self._thread = threading.Thread(target=self._live, name="beat", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Release the lock and clear the file."""
        self._released.set()
        self._thread.join(BEAT)  # the thread may hang in a storage that is gone
        with suppress(OSError):
            if self._is_mine():
                _write(self._file, None)
            self._file.close()

    def _live(self) -> None:
        while not self._released.wait(BEAT):
            with suppress(OSError):
                self._beat()

    def _beat(self) -> None:
        if not self._path.exists() or not os.path.samestat(
            self._path.stat(), os.fstat(self._file.fileno())
        ):
            old, self._file = self._file, self._recreate()
            old.close()
        with suppress(BlockingIOError):  # the process that recreated it sees us and stops
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._is_mine():
            self._me = replace(self._me, beat=self._me.beat + 1)
            _write(self._file, self._me)

    def _recreate(self) -> TextIO:
        """Recreate the file, locked and written before it is visible under its name. Returns it, or
        the file that another process has put there."""
        made = self._path.with_suffix(".anew")
        file = _open(made)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(file, self._me)
            os.link(made, self._path)
        except OSError:  # another process was faster, or the file system has no hard links
            file.close()
            file = _open(self._path)
        finally:
            made.unlink()
        return file

    def _is_mine(self) -> bool:
        there = _read(self._file)
        return there is None or there.id == self._me.id


def acquire(
    path: Path, *, run: str, nodes: Path | None = None, patience: float = LEASE
) -> DriverLock:
    """Take the lock of this run, whose workers have their folders in `nodes`.

    Raises AlreadyLed if another process holds it. If the last holder was on another machine, the
    file is watched for `patience` seconds before that holder counts as dead.
    """
    was_led = not path.exists() and _was_led(path, nodes)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Agents do not inherit the descriptor: a living agent must not keep a dead leader's lock.
    file = _open(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = _read(file)
        elsewhere = before is not None and before.elsewhere
        if elsewhere:
            _log.warning(
                "%s may still lead run %s; waiting %g s for a sign of life", before, run, patience
            )
        # A living holder may belong to the folder that this one was copied from.
        doubt = was_led or (before is not None and before.alive)
        _watch(path, before, seconds=patience if elsewhere else DOUBT if doubt else 0.0)
    except (BlockingIOError, _Alive):
        holder = _read(file)
        file.close()
        raise AlreadyLed(_refusal(run, holder)) from None
    except OSError:
        file.close()
        raise
    return DriverLock(path, file, before=before)


class _Alive(Exception):
    """The other holder has written a beat."""


def _was_led(path: Path, nodes: Path | None) -> bool:
    """Whether an earlier leader has left files or processes."""
    folder = path.parent
    return (folder.is_dir() and any(folder.iterdir())) or (
        nodes is not None and has_processes(nodes)
    )


def _watch(path: Path, before: Leader | None, *, seconds: float) -> None:
    """Watch the file for up to `seconds`, or until the holder releases the lock. Raises _Alive."""
    gone, pause = False, BEAT / 10
    for _ in range(round(seconds / pause)):  # counts reads: time in a hanging server shows nothing
        time.sleep(pause)
        try:
            with path.open() as file:  # reopened: an open file would not show remote writes
                there = _read(file)
        except FileNotFoundError:
            continue  # a living holder recreates it
        if there is None and gone:
            return  # released; empty only once may mean that a write is in progress
        gone = there is None and before is not None
        if there not in (None, before):
            raise _Alive


def _refusal(run: str, holder: Leader | None) -> str:
    if holder is None:
        return f"another process is starting run {run} right now; try again"
    return (
        f"run {run} is being led by {holder}; wait for it, or stop it "
        f"with `kill {holder.pid}` there (it saves a checkpoint first)"
    )


def leader_of(path: Path) -> Leader | None:
    """The process on this machine that leads the run with this lock; None: there is none."""
    try:
        with path.open() as file:
            leader = _read(file)
    except FileNotFoundError:
        return None
    return leader if leader is not None and leader.alive else None


def _read(file: TextIO) -> Leader | None:
    file.seek(0)
    try:
        return Leader(**json.loads(file.read()))
    except (ValueError, TypeError):
        return None


def _write(file: TextIO, leader: Leader | None) -> None:
    file.seek(0)
    file.write(json.dumps(asdict(leader)) if leader is not None else "")
    file.flush()
    file.truncate()


def _open(path: Path) -> TextIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")


def start_time(pid: int) -> int | None:
    """When this process started, in clock ticks since boot; None if it is not running."""
    fields = stat_of(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def _boot_id() -> str:
    return BOOT_ID.read_text().strip()
