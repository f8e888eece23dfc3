"""The kernel switches of an agent: subreaper, parent death, scheduling.

Layer: agent, leaf. Resolved at import, because the code that runs between fork and exec must not
look anything up: another thread may have held a lock while we forked.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""Constants of <linux/prctl.h>."""

_POLICY = os.sched_getscheduler(0)
"""The scheduling policy that we were started with, and that processes get."""
_NO_PRIORITY = os.sched_param(0)

_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def become_subreaper() -> None:
    """Orphaned descendants become our children, as they are process 1's in a container."""
    if os.getpid() == 1:
        return
    _checked(PR_SET_CHILD_SUBREAPER, 1)


def give_way() -> None:
    """Never take the CPU from a training process in the middle of its step.

    Without this the kernel often runs us at once, in place of the process whose report has woken
    us: `report()` then costs a training loop the time that we need to read it, not its own.
    """
    try:
        if _POLICY == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, _NO_PRIORITY)
    except OSError:
        return  # a sandbox that does not allow it: slower reports, nothing else


def signal_on_parent_death(number: int) -> None:
    """Ask for a signal when the thread that started us ends; misses one that is dead already."""
    _checked(PR_SET_PDEATHSIG, number)


def die_with_parent(parent: int) -> Callable[[], None]:
    """Return what a child of `parent` runs between fork and exec, to be killed with its parent."""

    gave_way = os.sched_getscheduler(0) != _POLICY

    def before_exec() -> None:
        if gave_way:
            os.sched_setscheduler(0, _POLICY, _NO_PRIORITY)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked: nobody will signal us
            os._exit(1)

    return before_exec


def _checked(option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")
