"""Files that two processes on one machine share: sockets, control files, marks of faults.

Layer: contract, leaf. They are in the folder of a worker or a run, and are deleted with it.

Thanks to the control file of a rank, an ordinary `should_save()` takes microseconds. Sixteen bytes,
little-endian `<QQ`: `prepare_at`, written by the agent (0: no call is stopped), and `calls`,
written by the process. All changes are made under `flock`, so on any CPU either the agent sees call
n counted, or the process sees n prepared. The kernel releases the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_SOCKET_NAME = 107
"""Maximum bytes of a socket's name in the kernel."""


@contextmanager
def reachable_socket(path: Path) -> Iterator[str]:
    """Give a name to bind or connect this socket, valid in the block, however long its path is: a
    deep folder gets a short name through its descriptor.

    Raises OSError if the folder does not exist.
    """
    if len(os.fsencode(path)) <= LONGEST_SOCKET_NAME:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


_LAYOUT = struct.Struct("<QQ")


class CallCounter:
    """The process's side of a control file; open for the life of the process."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        """Open the file that the agent created. Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def count_call(self) -> tuple[int, bool]:
        """Count a call; return its number and whether it must ask the agent for the answer.

        Raises OSError.
        """
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            prepare_at, calls = _read(self._fd)
            _write(self._fd, prepare_at, calls + 1)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        return calls + 1, prepare_at != 0 and calls + 1 >= prepare_at

    def close(self) -> None:
        """Close the file; the agent keeps using the last count."""
        os.close(self._fd)


class CallGate:
    """The agent's side of a control file; initially no call is stopped and none was made."""

    def __init__(self, path: Path) -> None:
        """Create the file, replacing an old one. Raises OSError."""
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        _write(self._fd, 0, 0)
        self._calls = 0

    @property
    def calls(self) -> int:
        """Number of calls of `should_save()` that its process has begun (may be one too low)."""
        return _read(self._fd)[1] if self._fd >= 0 else self._calls

    def try_prepare(self, call: int) -> bool:
        """Stop the process at `call`; False if it has already passed that call.

        Raises BlockingIOError while the process holds the lock.
        """
        with self._locked():
            calls = _read(self._fd)[1]
            if calls >= call:
                return False
            _write(self._fd, call, calls)
            return True

    def try_abort(self) -> None:
        """Let all calls pass again. Raises BlockingIOError while the process holds the lock."""
        with self._locked():
            _write(self._fd, 0, _read(self._fd)[1])

    def close(self) -> None:
        """Close the file; afterwards only `calls` may be used."""
        if self._fd >= 0:
            self._calls = self.calls
            os.close(self._fd)
            self._fd = -1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Never wait here: a process that a debugger stopped inside the lock must not block the
        # agent, or the worker would count as lost.
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)


def _read(fd: int) -> tuple[int, int]:
    prepare_at, calls = _LAYOUT.unpack(os.pread(fd, _LAYOUT.size, 0))
    return prepare_at, calls


def _write(fd: int, prepare_at: int, calls: int) -> None:
    os.pwrite(fd, _LAYOUT.pack(prepare_at, calls), 0)


def make_mark(path: Path | str) -> bool:
    """Create the mark; False: it already existed, or cannot be created."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def take_back_mark(path: Path | str) -> None:
    """Remove the mark, since the fault did not strike: it must still do so."""
    Path(path).unlink(missing_ok=True)
