"""An ordinary script for torchrun: it knows nothing of TrainRun, and resumes from its own file.

torchrun --nnodes=2 --nproc-per-node=2 train.py --snapshot /shared/snapshot.pt
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--snapshot", type=Path, required=True, help="on a disk that all nodes share"
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--pace", type=float, default=0.0, help="seconds that an epoch takes longer"
    )
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    first = load(options.snapshot, model, optimizer)
    if dist.get_rank() == 0:
        print(f"begins at epoch {first}", flush=True)

    for epoch in range(first, options.epochs):
        torch.manual_seed(epoch * dist.get_world_size() + dist.get_rank())
        inputs = torch.randn(32, 8)
        loss = mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.pace)
        if dist.get_rank() == 0:
            save(options.snapshot, epoch, model, optimizer)
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def load(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the epoch to begin with."""
    if not path.exists():
        return 0
    snapshot = torch.load(path, weights_only=True)
    model.load_state_dict(snapshot["model"])
    optimizer.load_state_dict(snapshot["optimizer"])
    return int(snapshot["epoch"]) + 1


def save(path: Path, epoch: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Replace the snapshot as a whole: a kill in the middle leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, new)
    new.replace(path)


if __name__ == "__main__":
    main()
