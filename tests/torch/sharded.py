"""An FSDP2 model saved by two ranks, each into a directory of its own; run by the tests."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.torch.training import join


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


def save_sharded(rank: int, store: str, directories: list[str], result: str) -> None:
    """Shard, take a step, save; rank 0 writes the full weights into `result` for comparison."""
    try:
        join(rank, 2, store)
        net = model()
        fully_shard(net, mesh=init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.ones(3, 16) * (rank + 1)).sum().backward()
        optimizer.step()
        weights = get_model_state_dict(net)
        save({"model": weights}, storage_writer=FileSystemWriter(directories[rank]))
        whole = StateDictOptions(full_state_dict=True)
        torch.save(get_model_state_dict(net, options=whole), result)
        dist.destroy_process_group()
    except BaseException:
        Path(result).write_text(traceback.format_exc())
        raise
