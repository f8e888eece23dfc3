"""An FSDP2 model that two ranks train, each saving into a directory of its own; run by tests."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

from tests.support.agent_stand_in import AgentStandIn
from tests.torch.training import join
from trainrun._process import session
from trainrun.torch import ResumableLoader, State

WORLD = 2
STEPS = 8
ACCUMULATED = 2


@dataclass(frozen=True)
class Sharding:
    """How one start of the training differs from another."""

    load: Path | None = None
    """The checkpoint to go on from, all ranks' files in one directory."""
    saves: dict[int, list[Path]] = field(default_factory=dict)
    """Where each rank saves after how many batches."""
    wait: bool = True
    """False: by `save(wait=False)`."""


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4))


def train_sharded(rank: int, store: str, plan: Sharding, result: str) -> None:
    """Train to the end; write the full weights into `result`."""
    try:
        join(rank, WORLD, store)
        with agent_of(rank, plan):
            train(rank, plan, result)
            dist.destroy_process_group()
            session.close()  # as at the end of a process
    except BaseException:
        Path(result).write_text(traceback.format_exc())
        raise


@contextmanager
def agent_of(rank: int, plan: Sharding) -> Iterator[None]:
    """Let an agent take what is saved beside the training, into the directories of the plan."""
    if plan.wait:
        yield
        return
    with tempfile.TemporaryDirectory() as folder, AgentStandIn(Path(folder), rank=rank) as agent:
        os.environ.update(agent.environment(WORLD_SIZE=str(WORLD)))
        yield
        for count, directories in plan.saves.items():
            shutil.move(agent.staging / f"step-{count:012d}", directories[rank])
            (directories[rank] / "count").write_text(str(count))


def train(rank: int, plan: Sharding, result: str) -> None:
    net = model()
    fully_shard(net, mesh=init_device_mesh("cpu", (WORLD,)))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    loader = ResumableLoader(TensorDataset(torch.randn(40, 16)), 2, shuffle=True)
    state = State(model=net, optimizer=optimizer, loader=loader, rng=True)
    torch.manual_seed(rank)
    count = 0
    if plan.load:
        state.read(plan.load)
        count = int((plan.load / "count").read_text())
    while count < STEPS:
        for (batch,) in loader:
            count += 1
            net(batch).square().mean().backward()
            if count % ACCUMULATED == 0:
                optimizer.step()
                optimizer.zero_grad()
            if count in plan.saves and plan.wait:
                state.write(plan.saves[count][rank])
                (plan.saves[count][rank] / "count").write_text(str(count))
            elif count in plan.saves:
                state.save(count, wait=False)
            if count == STEPS:
                break
    whole = StateDictOptions(full_state_dict=True)
    torch.save(get_model_state_dict(net, options=whole), result)
