"""A small network in shards (FSDP2) that learns to copy noise; run by the tests.

Dropout, AdamW, gradient accumulation over two batches, a learning rate that falls, data drawn and
changed at random. A step is a batch, so that a save may fall into accumulation; an epoch has
fifteen, so that accumulation goes on over its end. Needs nothing but PyTorch.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from common import STEPS, hang_before, tell_weights, wait_after
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

import trainrun
from trainrun.torch import ResumableLoader, State


def collate(samples: list[Any]) -> torch.Tensor:
    clean = torch.stack([sample for (sample,) in samples])
    return clean + 0.1 * torch.randn(clean.shape)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(60, 8))
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 32),
        torch.nn.LayerNorm(32),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(32, 8),
    )
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.8)
    loaders = int(os.environ.get("LOADERS", "0"))
    loader = ResumableLoader(data, 2, shuffle=True, num_workers=loaders, collate_fn=collate)
    state = State(model=net, optimizer=optimizer, scheduler=scheduler, loader=loader, rng=True)
    torch.manual_seed(dist.get_rank())  # other dropout on every rank

    step = state.load()
    while step < STEPS:
        for batch in loader:
            hang_before(step + 1)
            loss = torch.nn.functional.mse_loss(net(batch), batch)
            loss.backward()
            step += 1
            if step % 2 == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            wait_after(step)
            if trainrun.should_save() or step % 4 == 0:
                state.save(step, {"loss": loss.item()})
            else:
                trainrun.report({"loss": loss.item()}, step=step)
            if step == STEPS:
                break
    tell_weights(net)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
