"""What a Linux process is to its parent and its orphans: prctl(2), by way of ctypes.

Layer: leaf, of the agent and of tasks. Process 1 of a container needs nothing of this. Resolved at
import, because the code that runs between fork and exec must not look anything up: another thread
may have held a lock while we forked.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""Constants of <linux/prctl.h>."""

_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def become_subreaper() -> None:
    """Orphaned descendants become our children, as they are process 1's in a container."""
    _checked(PR_SET_CHILD_SUBREAPER, 1)


def signal_on_parent_death(number: int) -> None:
    """Ask for a signal when the thread that started us ends; misses one that is dead already."""
    _checked(PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int) -> Callable[[], None]:
    """Return what a child of `parent` runs between fork and exec, to be killed with its parent."""

    def before_exec() -> None:
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked: nobody will signal us
            os._exit(1)

    return before_exec


def _checked(option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
