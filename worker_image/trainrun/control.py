"""The control file of a rank: what makes an ordinary `should_save()` cost microseconds.

Layout: little-endian `<QQ`, `prepare_at` (written by the agent) and `calls` (written by us). Every
access is under `flock`: so a call is either counted before the agent asks for a vote (which it then
refuses for that call), or it sees the vote. The kernel drops the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_LAYOUT = struct.Struct("<QQ")


class ControlFile:
    """This rank's end of the file; open for the life of the process."""

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
            prepare_at, calls = _LAYOUT.unpack(os.pread(self._fd, _LAYOUT.size, 0))
            os.pwrite(self._fd, _LAYOUT.pack(prepare_at, calls + 1), 0)
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        return calls + 1, prepare_at != 0 and calls + 1 >= prepare_at

    def close(self) -> None:
        """Close the file; the agent goes by the last count."""
        os.close(self._fd)
