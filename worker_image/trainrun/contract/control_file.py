"""The control file of a rank: what makes an ordinary `should_save()` cost microseconds.

Layer: contract, leaf. Sixteen bytes, little-endian `<QQ`: `prepare_at`, written by the agent (0: no
call is stopped), and `calls`, written by the process. Every change is made under `flock`: so either
the agent sees call n counted, or the process sees n prepared, whatever the CPU. The kernel drops
the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LAYOUT = struct.Struct("<QQ")


class CallCounter:
    """The process's end; open for the life of the process."""

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
    """The agent's end; created open: no call is stopped and none was made."""

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
