"""Ranks that compute for a while and then add up: in each step all wait for the slowest one.

Rank 1 computes four times as long. It ends once the file JOURNAL/go is there, on all ranks at the
same step.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed

import trainrun

WORK = 0.02
"""CPU seconds of a step."""

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
here = Path(os.environ["JOURNAL"])
here.mkdir(parents=True, exist_ok=True)
step, over = 0, False
while not over:
    step += 1
    until = time.thread_time() + (4.0 if rank == 1 else 1.0) * WORK
    while time.thread_time() < until:
        torch.ones(64, 64) @ torch.ones(64, 64)
    asked = torch.tensor([float((here / "go").exists())])
    torch.distributed.all_reduce(asked)
    trainrun.report({"loss": 1 / step}, step=step)
    over = bool(asked.item())
torch.distributed.destroy_process_group()
