"""How the kernel shares the CPU between an agent and its processes.

Layer: agent, leaf.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_POLICY = os.sched_getscheduler(0)
"""The scheduling policy that we were started with, and that processes get."""
_NO_PRIORITY = os.sched_param(0)


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


@contextmanager
def as_started() -> Iterator[None]:
    """What this thread starts meanwhile gets the policy that we were started with."""
    policy = os.sched_getscheduler(0)
    if policy == _POLICY:
        yield
        return
    os.sched_setscheduler(0, _POLICY, _NO_PRIORITY)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, _NO_PRIORITY)
