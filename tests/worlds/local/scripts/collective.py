"""Rank 1 dies of its batch, rank 0 of the collective in which it waits. Without the library."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
if os.environ["BAR"]:
    sys.stderr.write("\r 30%|███       | 3/10 [00:00<00:00, 11.10it/s]")
    sys.stderr.flush()
for batch in range(3):
    if batch == 2 and dist.get_rank() == 1:
        raise ValueError("a bad batch")
    dist.all_reduce(torch.ones(1))
