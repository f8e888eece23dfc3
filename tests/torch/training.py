"""A DDP training in which everything that can disturb a resume takes part; run by the tests.

Dropout, batch norm, momentum, a scheduler, gradient accumulation over three batches without
synchronization, a last batch of each epoch that is smaller, Python's and NumPy's random numbers,
data that is augmented at random.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from trainrun.torch import ResumableLoader, State, warm_up

WORLD = 4  # with two ranks a sum has one order only
EPOCHS = 3
BATCH = 5
SAMPLES = 210  # 52 for each rank: ten batches of 5 and one of 2
BATCHES = 11
ACCUMULATED = 3


@dataclass(frozen=True)
class Plan:
    """How one start of the training differs from another."""

    load: Path | None = None
    """The checkpoint to go on from."""
    saves: dict[int, Path] = field(default_factory=dict)
    """Where to save after how many batches."""
    warm: bool = True
    num_workers: int = 0
    """Of the loader."""


class Augmented(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Each sample with noise from three generators."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self.inputs = torch.randn(SAMPLES, 32, generator=generator)
        self.labels = torch.randint(0, 10, (SAMPLES,), generator=generator)

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = random.random() + float(numpy.random.rand()) + torch.rand(32)
        return self.inputs[index] + 0.1 * noise, self.labels[index]


def run_rank(rank: int, store: str, plan: Plan, result: str) -> None:
    """Train to the end; write the digest of all that came out."""
    try:
        join(rank, WORLD, store)
        Path(result).write_text(train(rank, plan))
        dist.destroy_process_group()
    except BaseException:
        Path(result).write_text(traceback.format_exc())
        raise


def join(rank: int, world: int, store: str) -> None:
    """Set up a gloo process group of this process's own making."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)


def train(rank: int, plan: Plan) -> str:
    torch.manual_seed(100 + rank)
    random.seed(rank)
    numpy.random.seed(rank)
    data = Augmented()
    net = nn.Sequential(
        nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10)
    )
    model = DistributedDataParallel(net, bucket_cap_mb=0.005)  # several buckets
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.9)
    loader = ResumableLoader(data, BATCH, shuffle=True, seed=3, num_workers=plan.num_workers)
    state = State(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader, rng=True)

    if plan.warm:
        x, y = data.inputs[:BATCH], data.labels[:BATCH]
        warm_up(model, lambda: nn.functional.cross_entropy(model(x), y))
    count = 0
    if plan.load:
        state.read(plan.load)
        count = int((plan.load / "count").read_text())
    for _ in range(loader.epoch, EPOCHS):
        for x, y in loader:
            count += 1
            noise = random.random() + float(numpy.random.rand())
            last = count % ACCUMULATED == 0
            with contextlib.nullcontext() if last else model.no_sync():
                loss = nn.functional.cross_entropy(model(x + noise), y)
                loss.backward()  # type: ignore[no-untyped-call]
            if last:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if count in plan.saves:
                state.write(plan.saves[count])
                (plan.saves[count] / "count").write_text(str(count))
    return digest(net, optimizer)


def digest(net: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """One number for weights, buffers, momenta and the random numbers that come next."""
    sha = hashlib.sha256()
    for tensor in net.state_dict().values():
        sha.update(tensor.numpy().tobytes())
    for parameter in optimizer.state.values():
        sha.update(parameter["momentum_buffer"].numpy().tobytes())
    sha.update(f"{random.random()} {numpy.random.rand()} {torch.rand(1).item()}".encode())
    return sha.hexdigest()
