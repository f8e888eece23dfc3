"""One process at a time leads a local run.

Layer: worlds/local. The lock is a flock that the kernel releases when its holder dies, however it
dies: a dead leader is followed at once. A flock may not be all: somebody removes the file, or it
counts on one machine only (NFS with nolock). So the holder names itself in the file, writes it
again and again, and makes it anew where it is gone. Whoever gets the lock and finds reason to
doubt watches the file before he leads.
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
from trainrun_operator.worlds.local.worker import has_any, stat_of

BEAT = 2.0
"""Seconds between two signs of life."""
DOUBT = 4 * BEAT
"""Seconds for which a file is watched that is missing although the run was led before, or whose
last holder lives."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger(__name__)


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
    id: str = ""
    """Of this driver alone."""
    beat: int = 0
    """Grows while it lives."""

    @staticmethod
    def this() -> Leader:
        """Our process."""
        pid = os.getpid()
        started = start_time(pid) or 0
        host, own = socket.gethostname(), str(uuid.uuid4())
        return Leader(pid=pid, started=started, boot=_boot_id(), host=host, id=own)

    @property
    def elsewhere(self) -> bool:
        """Nothing can be said of it from here."""
        return (self.boot, self.host) != (_boot_id(), socket.gethostname())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def alive(self) -> bool:
        """Whether it still runs on this machine."""
        return self.boot == _boot_id() and start_time(self.pid) == self.started


class DriverLock:
    """Held for the life of a `trainrun run`, which shows life meanwhile."""

    def __init__(self, path: Path, file: TextIO, *, before: Leader | None) -> None:
        self._path = path
        self._file = file
        self._me = Leader.this()
        self.before = before
        """Who held it last and did not release it: it died."""
        self._released = threading.Event()
        _write(file, self._me)
        os.fsync(file.fileno())  # for other machines; of beats one more or less does not matter
        self._thread = threading.Thread(target=self._live, name="beat", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Give the lock back in order."""
        self._released.set()
        self._thread.join(BEAT)  # it may wait for a storage that is gone
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
        with suppress(BlockingIOError):  # who has made it anew sees us, and goes
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._is_mine():
            self._me = replace(self._me, beat=self._me.beat + 1)
            _write(self._file, self._me)

    def _recreate(self) -> TextIO:
        """The file, locked and written before anybody sees it; or what is there instead of it."""
        made = self._path.with_suffix(".anew")
        file = _open(made)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(file, self._me)
            os.link(made, self._path)
        except OSError:  # somebody was faster, or there are no links
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

    Raises AlreadyLed while another process holds it. Where the last holder was on another machine,
    it is watched for `patience` seconds before it counts as dead.
    """
    was_led = not path.exists() and _was_led(path, nodes)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The descriptor is not inherited by agents: a living agent must not keep a dead leader's lock.
    file = _open(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = _read(file)
        elsewhere = before is not None and before.elsewhere
        if elsewhere:
            _log.warning("%s may still lead run %s: watching it for %g s", before, run, patience)
        # It lives, and may be that of the folder which this one was copied from.
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
    """The other one shows life."""


def _was_led(path: Path, nodes: Path | None) -> bool:
    """Something of an earlier leader is there, or lives."""
    folder = path.parent
    return (folder.is_dir() and any(folder.iterdir())) or (nodes is not None and has_any(nodes))


def _watch(path: Path, before: Leader | None, *, seconds: float) -> None:
    """Wait so long for a sign of life, or until the holder gives the lock back. Raises _Alive."""
    gone, pause = False, BEAT / 10
    for _ in range(round(seconds / pause)):  # looks, not time: a server that hangs shows nothing
        time.sleep(pause)
        try:
            with path.open() as file:  # anew: what another machine wrote shows in no open file
                there = _read(file)
        except FileNotFoundError:
            continue  # who lives makes it anew
        if there is None and gone:
            return  # given back in order; once alone, it may be just being written
        gone = there is None and before is not None
        if there not in (None, before):
            raise _Alive


def _refusal(run: str, holder: Leader | None) -> str:
    if holder is None:
        return f"run {run} is just being started by another process: try again"
    return (
        f"run {run} is being led by {holder}: wait for it, or stop it "
        f"with `kill {holder.pid}` there (it saves a checkpoint first)"
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
    """When this process started, in clock ticks since boot; None when there is none."""
    fields = stat_of(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def _boot_id() -> str:
    return BOOT_ID.read_text().strip()
