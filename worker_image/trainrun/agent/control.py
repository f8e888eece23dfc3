"""The control file of one rank: how the agent stops the n-th call of `should_save()`.

Layer: agent, leaf. Sixteen bytes, `<QQ`: prepare_at, calls. Every change happens under `flock`, so
that either the agent sees call n counted, or the process sees n prepared, whatever the CPU; the
kernel frees the lock of a process that dies. The process side is in `trainrun.saving`.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LAYOUT = struct.Struct("<QQ")


class ControlFile:
    """The agent's end; created empty: nothing is prepared and no call was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.pwrite(self._fd, LAYOUT.pack(0, 0), 0)
        self._calls = 0

    @property
    def calls(self) -> int:
        """How many calls of `should_save()` its process has begun (may be a call behind)."""
        return int(self._read()[1]) if self._fd >= 0 else self._calls

    def try_prepare(self, call: int) -> bool:
        """Stop the process at `call`; False when it is past that already.

        Raises BlockingIOError while the process holds the lock.
        """
        with self._locked():
            calls = self._read()[1]
            if calls >= call:
                return False
            os.pwrite(self._fd, LAYOUT.pack(call, calls), 0)
            return True

    def try_abort(self) -> None:
        """Let the process pass again. Raises BlockingIOError while the process holds the lock."""
        with self._locked():
            os.pwrite(self._fd, LAYOUT.pack(0, self._read()[1]), 0)

    def close(self) -> None:
        """Close the file; only `calls` is of use afterwards."""
        if self._fd >= 0:
            self._calls = self.calls
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> tuple[int, int]:
        prepare_at, calls = LAYOUT.unpack(os.pread(self._fd, LAYOUT.size, 0))
        return prepare_at, calls

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Never wait here: a process that a debugger stopped inside the lock must not stop the
        # agent, whose silence would count as the loss of the worker.
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
