"""A transformer whose weights are sharded over all ranks (FSDP2), resuming exactly where it was.

Runs as a TrainRun (see trainrun.yaml) and under torchrun:

    trainrun run examples/fsdp2/trainrun.yaml
    torchrun --nproc-per-node 2 examples/fsdp2/train.py
"""

from __future__ import annotations

import argparse
import hashlib
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import trainrun
from trainrun.torch import ResumableLoader, State

LETTERS = 26


def main() -> None:
    options = parse_options()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(1)  # another number of threads gives other results
    else:
        torch.cuda.set_device(trainrun.get_context().local_rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    rank = dist.get_rank()

    torch.manual_seed(options.seed)  # the same first weights, however they are sharded
    model = Reader().to(device)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    loader = ResumableLoader(Words(), options.batch, shuffle=True, seed=options.seed)
    state = State(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, rng=True)
    torch.manual_seed(options.seed + rank)  # other dropout on every rank

    step = state.load()
    while step < options.steps:
        for letters, answer in loader:
            time.sleep(options.pace)  # makes a small model slow enough to be watched
            loss = cross_entropy(model(letters.to(device)), answer.to(device))
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1

            metrics = {"loss": loss.item()}
            save_asked = trainrun.should_save()  # at every step, on every rank
            if save_asked or step % options.save_every == 0 or step == options.steps:
                state.save(step, metrics)  # each rank its own shards
            else:
                trainrun.report(metrics, step=step)
            if step == options.steps:
                break

    print(f"rank {rank}: shards {digest(model)}", flush=True)
    dist.destroy_process_group()


class Reader(nn.Module):
    """Reads four letters and guesses which of them is the last in the alphabet."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, nhead=2, dim_feedforward=64, batch_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(width, LETTERS)

    def forward(self, letters: Tensor) -> Tensor:
        hidden = self.embedding(letters)
        for layer in self.layers:
            hidden = layer(hidden)
        guess: Tensor = self.head(hidden.mean(dim=1))
        return guess


class Words(Dataset[tuple[Tensor, Tensor]]):
    """Four letters each, and the one that is the last in the alphabet."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(number)
        letters = torch.randint(LETTERS, (4,), generator=draw)
        return letters, letters.max()


def digest(model: nn.Module) -> str:
    """Return what tells two models apart that differ in a single bit of this rank's shards."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.to_local().detach().cpu().numpy().tobytes())
    return sha.hexdigest()[:16]


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small transformer in shards.")
    parser.add_argument("--steps", type=int, default=100, help="optimizer steps")
    parser.add_argument("--batch", type=int, default=16, help="samples of each rank in a step")
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep in each step")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
