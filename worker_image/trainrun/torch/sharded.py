"""Saves and loads sharded modules and their optimizers with torch.distributed.checkpoint.

Imported only if there are any: the import takes as long as importing torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from trainrun.torch.modules import bare


def write(parts: Mapping[str, Any], folder: Path) -> None:
    """Write this rank's shards; a collective call."""
    save(_state_of(parts), storage_writer=FileSystemWriter(folder), no_dist=_alone())


def read(parts: Mapping[str, Any], folder: Path) -> None:
    """Read into modules and optimizers, sharded in any way or not at all; a collective call.

    Raises ValueError if an optimizer cannot hold a saved state.
    """
    reader = FileSystemReader(folder)
    metadata = reader.read_metadata()
    optimizers = {n: part for n, part in parts.items() if isinstance(part, torch.optim.Optimizer)}
    with ExitStack() as ready:
        for name, optimizer in optimizers.items():
            module, saved = _module_of(name, optimizer, parts), _saved(metadata, name)
            ready.enter_context(_made_ready(module, optimizer, saved))
            if lost := _without_place(module, optimizer, saved):
                raise ValueError(
                    f"{folder} has a state of {name} that this optimizer cannot hold: "
                    f"{', '.join(lost)}. Pass State the same optimizer for the same parameters"
                )
        state = _state_of(parts)
        load(state, storage_reader=reader, no_dist=_alone())
        for name, part in parts.items():
            if name in optimizers:
                with _without_a_step(part):
                    module = _module_of(name, part, parts)
                    set_optimizer_state_dict(module, part, optim_state_dict=state[name])
            else:
                set_model_state_dict(bare(part), state[name])


def _state_of(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _optimizer_state(_module_of(name, part, parts), part)
        if isinstance(part, torch.optim.Optimizer)
        else get_model_state_dict(bare(part))
        for name, part in parts.items()
    }


def _optimizer_state(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's unchanged state, by parameter names."""
    with _without_a_step(optimizer):
        return get_optimizer_state_dict(module, optimizer)


@contextmanager
def _without_a_step(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Keep PyTorch from filling an empty state with a step, which later steps would count.

    PyTorch does not do that if a parameter has a gradient.
    """
    first = _parameters(optimizer)[0]
    before = first.grad
    if before is None and not optimizer.state:
        first.grad = torch.zeros_like(first)
    try:
        yield
    finally:
        first.grad = before


@contextmanager
def _made_ready(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, set[str]]
) -> Iterator[None]:
    """Give the optimizer a state for exactly the parameters with a saved one.

    PyTorch creates and loads the state of parameters that require a gradient. These may differ from
    those at the save: parameters get frozen and unfrozen, and one that never had a gradient has no
    state.
    """
    groups = _optimizer_state(module, optimizer)["param_groups"]
    names = [name for group in groups for name in group["params"]]
    parameters = dict(zip(names, _parameters(optimizer), strict=True))
    required = {name: parameter.requires_grad for name, parameter in parameters.items()}
    if any(parameters[name] not in optimizer.state for name in saved if name in parameters):
        optimizer.state.clear()
    try:
        for name, parameter in parameters.items():
            parameter.grad = None
            parameter.requires_grad_(name in saved)
            if name not in saved:
                optimizer.state.pop(parameter, None)
        if saved:
            get_optimizer_state_dict(module, optimizer)  # does a step with learning rate 0
        yield
    finally:
        for name, parameter in parameters.items():
            parameter.requires_grad_(required[name])


def _saved(metadata: Metadata, name: str) -> dict[str, set[str]]:
    """The keys of an optimizer's state in a checkpoint, by parameter names."""
    saved: dict[str, set[str]] = {}
    for part, *path in metadata.planner_data.values():
        if part == name and path[0] == "state":
            saved.setdefault(path[1], set()).add(path[2])
    return saved


def _without_place(
    module: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, set[str]]
) -> list[str]:
    places = _optimizer_state(module, optimizer)["state"]
    return sorted(
        f"{key} of {parameter}"
        for parameter, keys in saved.items()
        for key in keys - {str(key) for key in places.get(parameter, {})}
    )


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _module_of(
    name: str, optimizer: torch.optim.Optimizer, parts: Mapping[str, Any]
) -> torch.nn.Module:
    """The module whose parameters the optimizer changes: the state uses its parameter names."""
    changed = {id(parameter) for parameter in _parameters(optimizer)}
    for part in parts.values():
        if isinstance(part, torch.nn.Module):
            module = bare(part)
            if changed <= {id(parameter) for parameter in module.parameters()}:
                return module
    raise ValueError(
        f"{name} has sharded parameters that do not all belong to one module of this State: pass "
        "State the module whose parameters it changes"
    )


def _alone() -> bool:
    return not (dist.is_available() and dist.is_initialized())
