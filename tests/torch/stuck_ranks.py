"""Three ranks with gloo that stand still in attempt 1, in the way that STUCK says.

No rank hears SIGTERM.
"""

from __future__ import annotations

import os
import signal
import time

import torch
import torch.distributed as dist

import trainrun

signal.signal(signal.SIGTERM, signal.SIG_IGN)
context = trainrun.get_context()
dist.init_process_group("gloo")
first, second = dist.new_group(), dist.new_group()
value = torch.ones(1)


def away() -> None:
    """Rank 2 does something else, and never comes."""
    if context.rank == 2:
        time.sleep(3600)
    dist.all_reduce(value)


def mismatched() -> None:
    """Rank 2 calls another collective than the others."""
    if context.rank == 2:
        dist.broadcast(value, src=0)
        dist.barrier()
    dist.all_reduce(value)
    dist.all_reduce(value)


def together() -> None:
    """All are in a collective that never ends: rank 0 is in that of another group."""
    dist.all_reduce(value, group=second if context.rank == 0 else first)


for step in range(1, 5):
    if (context.attempt, step) == (1, 3):
        globals()[os.environ["STUCK"]]()
    dist.all_reduce(value)
    trainrun.report({"loss": 1 / step}, step=step)
