"""The training that all peers run: DDP over gloo, with a trail of its steps.

Each start of a rank appends lines to a file of its own, so that whoever measures sees when which
step was made and which process made it.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAVE_EVERY = 60
STEP_SECONDS = 0.05
WIDTH = 64


class Training:
    """One rank's part of it; the process group exists already."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.rank = dist.get_rank()
        net, self._batch = self.parts()
        self.model = DistributedDataParallel(net)
        self.optimizer = self.optimizer_of(self.model)
        trail = Path(os.environ["TRAIL"])
        self._trail = (trail / f"rank-{self.rank}-{uuid.uuid4().hex}.jsonl").open("w")

    def parts(self) -> tuple[nn.Module, torch.Tensor]:
        """What is trained, and the batch of every step."""
        net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        return net, torch.randn(WIDTH, WIDTH)

    def optimizer_of(self, model: nn.Module) -> torch.optim.Optimizer:
        """What trains it."""
        return torch.optim.SGD(model.parameters(), lr=0.01)

    def began(self, step: int, **more: object) -> None:
        """This start goes on after `step`; whoever sends notices needs the parent's id."""
        self.tell({"resumed": step, "pid": os.getpid(), "parent": os.getppid(), **more})

    def step(self, step: int) -> None:
        """Make one step."""
        self.optimizer.zero_grad()
        self.model(self._batch).square().mean().backward()
        self.optimizer.step()
        self.tell({"step": step})
        time.sleep(STEP_SECONDS)

    def save(self, file: Path) -> None:
        """Write model and optimizer."""
        states = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(states, file)

    def load(self, file: Path) -> None:
        """Read them."""
        states = torch.load(file, weights_only=True)
        self.model.load_state_dict(states["model"])
        self.optimizer.load_state_dict(states["optimizer"])

    def tell(self, entry: dict[str, object]) -> None:
        """Add a line to the trail."""
        self._trail.write(json.dumps({"time": time.time(), **entry}) + "\n")
        self._trail.flush()
