"""Sharded modules and their optimizers, by torch.distributed.checkpoint.

Imported where there are some only: that takes as long as importing torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from trainrun.torch.modules import bare

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write(parts: Mapping[str, Any], folder: Path) -> None:
    """Write this rank's shards; a collective call."""
    save(_state_of(parts), storage_writer=FileSystemWriter(folder), no_dist=_alone())


def read(parts: Mapping[str, Any], folder: Path) -> None:
    """Read into modules and optimizers, sharded in any way or not at all; a collective call."""
    state = _state_of(parts)
    load(state, storage_reader=FileSystemReader(folder), no_dist=_alone())
    for name, part in parts.items():
        if isinstance(part, torch.optim.Optimizer):
            module = _module_of(name, part, parts)
            set_optimizer_state_dict(module, part, optim_state_dict=state[name])
        else:
            set_model_state_dict(bare(part), state[name])


def _state_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: get_optimizer_state_dict(_module_of(name, part, parts), part)
        if isinstance(part, torch.optim.Optimizer)
        else get_model_state_dict(bare(part))
        for name, part in parts.items()
    }


def _module_of(
    name: str, optimizer: torch.optim.Optimizer, parts: Mapping[str, Any]
) -> torch.nn.Module:
    """The module whose parameters it changes: their names are those of its state."""
    changed = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for part in parts.values():
        if isinstance(part, torch.nn.Module):
            module = bare(part)
            if changed <= {id(parameter) for parameter in module.parameters()}:
                return module
    raise ValueError(
        f"{name} has sharded parameters that no module here has all of: give State the module "
        "whose parameters it changes"
    )


def _alone() -> bool:
    return not (dist.is_available() and dist.is_initialized())
