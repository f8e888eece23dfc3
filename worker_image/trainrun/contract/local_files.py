"""Files by which two sides on one machine meet: sockets, control files, marks of faults.

Layer: contract, leaf. They lie in the folder of a worker or a run, and end with it.

The control file of a rank is what makes an ordinary `should_save()` cost microseconds. Sixteen
bytes, little-endian `<QQ`: `prepare_at`, written by the agent (0: no call is stopped), and `calls`,
written by the process. Every change is made under `flock`: so either the agent sees call n counted,
or the process sees n prepared, whatever the CPU. The kernel drops the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_SOCKET_NAME = 107
"""Bytes that the kernel takes."""


@contextmanager
def reachable_socket(path: Path) -> Iterator[str]:
    """A name by which this socket is bound and reached, for the time of the block, however deep its
    folder lies: that has a short name through its descriptor.

    Raises OSError where there is no such folder.
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
    """The process's end of a control file; open for the life of the process."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        """Open the file that the agent made. Raises OSError."""
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def count_call(self) -> tuple[int, bool]:
        """Count a call; return its number and whether it must ask the agent for its answer.

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
        """Close the file; the agent goes by the last count."""
        os.close(self._fd)


class CallGate:
    """The agent's end of it; created open: no call is stopped and none was made."""

    def __init__(self, path: Path) -> None:
        """Make the file anew. Raises OSError."""
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        _write(self._fd, 0, 0)
        self._calls = 0

    @property
    def calls(self) -> int:
        """How many calls of `should_save()` its process has begun (may be a call behind)."""
        return _read(self._fd)[1] if self._fd >= 0 else self._calls

    def try_prepare(self, call: int) -> bool:
        """Stop the process at `call`; False when it is past that already.

        Raises BlockingIOError while the process holds the lock.
        """
        with self._locked():
            calls = _read(self._fd)[1]
            if calls >= call:
                return False
            _write(self._fd, call, calls)
            return True

    def try_abort(self) -> None:
        """Let the process pass again. Raises BlockingIOError while the process holds the lock."""
        with self._locked():
            _write(self._fd, 0, _read(self._fd)[1])

    def close(self) -> None:
        """Close the file; only `calls` is of use afterwards."""
        if self._fd >= 0:
            self._calls = self.calls
            os.close(self._fd)
            self._fd = -1

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Never wait here: a process that a debugger stopped inside the lock must not stop the
        # agent, whose silence would count as the loss of the worker.
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
    """Whether the mark was not there before; False, too, where it cannot be made."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def take_back_mark(path: Path | str) -> None:
    """The fault hit nobody: it is still to strike."""
    Path(path).unlink(missing_ok=True)
