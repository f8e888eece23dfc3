"""The state of a single rank: gradients and buffers of its modules, random numbers.

Frameworks save the state that all ranks share; some save no random numbers. For these, each rank
writes an additional file.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn.parallel import DistributedDataParallel

from trainrun._process.context import get_context
from trainrun.torch import random_state

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

DDP_SYNCHRONIZES = "require_forward_param_sync"
"""DDP's flag for whether its next forward copies rank 0's buffers: not after `no_sync()`."""

USED = "trainrun_used"
"""Attribute of a gradient: its version (PyTorch counts the writes) when an optimizer used it."""


def bare(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module without DistributedDataParallel and `torch.compile` wrappers."""
    while True:
        if isinstance(module, DistributedDataParallel):
            module = cast("torch.nn.Module", module.module)
        elif "_orig_mod" in module._modules:  # noqa: SLF001 - as torch.compile wraps it
            module = cast("torch.nn.Module", module._orig_mod)  # noqa: SLF001
        else:
            return module


def watch(optimizer: torch.optim.Optimizer) -> None:
    """Hook into an optimizer's steps; unwraps one of Accelerate, which has no hooks."""
    while isinstance(wrapped := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = wrapped
    optimizer.register_step_post_hook(mark_used)


def mark_used(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Mark the gradients of an optimizer as used, after its step."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                setattr(parameter.grad, USED, _version(parameter.grad))


def own_state(module: torch.nn.Module) -> dict[str, Any]:
    """Return the state of this rank alone: gradients that no optimizer has used, and buffers.

    Raises RuntimeError if FSDP2 has unsynchronized gradients.
    """
    inner = bare(module)
    if any(_unsynchronized(part) for part in inner.modules()):
        raise RuntimeError(
            "FSDP2 has unsynchronized gradients, which cannot be saved: save after "
            "optimizer.step(), or accumulate without set_requires_gradient_sync(False) and "
            "set_requires_all_reduce(False)"
        )
    kept = set(inner.state_dict().keys())
    return {
        "gradients": {
            name: local(parameter.grad)
            for name, parameter in inner.named_parameters()
            if parameter.grad is not None and _is_unused(parameter.grad)
        },
        "buffers": {n: local(buffer) for n, buffer in inner.named_buffers() if n in kept},
        "synchronizes": _ddp_synchronizes(module),
    }


def is_accumulating(
    module: torch.nn.Module,
    own: Mapping[str, Any],
    optimizers: Iterable[torch.optim.Optimizer],
) -> bool:
    """Whether `own_state` returned gradients that the next step of an optimizer would use.

    Ignores zero gradients, as left by `zero_grad(set_to_none=False)`, and parameters without an
    optimizer; without any optimizers, all parameters count.
    """
    changed = {id(p) for each in optimizers for group in each.param_groups for p in group["params"]}
    parameters = dict(bare(module).named_parameters())
    return any(
        _is_not_zero(gradient)
        for name, gradient in own["gradients"].items()
        if not changed or id(parameters[name]) in changed
    )


def load_own_state(module: torch.nn.Module, state: dict[str, Any]) -> None:
    """Load what `own_state` returned."""
    inner = bare(module)
    for name, parameter in inner.named_parameters():
        gradient = state["gradients"].get(name)
        parameter.grad = None if gradient is None else _like(parameter, gradient)
    buffers = dict(inner.named_buffers())
    with torch.no_grad():
        for name, value in state["buffers"].items():
            local(buffers[name]).copy_(value)
    for part in module.modules():
        if isinstance(part, DistributedDataParallel):
            setattr(part, DDP_SYNCHRONIZES, state["synchronizes"])


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's shard of a sharded tensor; any other tensor unchanged."""
    if not is_sharded(tensor):
        return tensor
    with torch.no_grad():
        return cast("DTensor", tensor).to_local()


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor. Does not import its module, which takes as long as torch."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def write_rank_file(
    folder: Path,
    models: Sequence[torch.nn.Module],
    *,
    shared: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    """Write this rank's file.

    Args:
        folder: The folder of the rank's part of a checkpoint.
        models: Including their DistributedDataParallel wrappers, if any.
        shared: State common to all ranks; plain values and tensors.
        more: State of this rank; plain values and tensors. `rng` replaces the current state.
    """
    context = get_context()
    own = {
        "world_size": context.world_size,
        "shared": shared or {},
        "modules": [own_state(model) for model in models],
        "rng": random_state.capture(),
    }
    torch.save({**own, **more}, folder / _name(context.rank))


def read_rank_file(folder: Path) -> dict[str, Any]:
    """Return what this rank wrote; with another number of ranks, only `shared`, with a warning."""
    context = get_context()
    # Rank 0 always wrote one, whatever the number of ranks was.
    content = _load(folder, 0)
    if content["world_size"] == context.world_size:
        return _load(folder, context.rank)
    warnings.warn(
        f"the checkpoint was saved by {content['world_size']} ranks, but this run has "
        f"{context.world_size}: each rank's random numbers and buffers were reset, so the training "
        "continues, but not bit for bit",
        stacklevel=2,
    )
    return {"shared": content["shared"]}


def restore_rank_state(own: dict[str, Any], models: Sequence[torch.nn.Module]) -> None:
    """Load what `read_rank_file` returned."""
    for model, state in zip(models, own.get("modules", []), strict=False):
        load_own_state(model, state)
    if "rng" in own:
        random_state.restore(own["rng"])


def _like(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    gradient = gradient.to(parameter.device)
    if not is_sharded(parameter):
        return gradient
    whole = cast("DTensor", parameter)
    return type(whole).from_local(
        gradient,
        whole.device_mesh,
        whole.placements,
        shape=whole.shape,
        stride=whole.stride(),
    )


def _unsynchronized(part: torch.nn.Module) -> bool:
    """Whether FSDP2 holds gradients of this module's own group outside of the parameters' `grad`.

    They are visible only in private attributes, whose names differ between PyTorch versions.
    """
    state_of_fsdp = getattr(part, "_get_fsdp_state", None)
    if state_of_fsdp is None:
        return False
    fsdp = state_of_fsdp()
    groups = getattr(fsdp, "_fsdp_param_groups", None)
    for group in [getattr(fsdp, "_fsdp_param_group", None)] if groups is None else groups:
        if getattr(group, "_partial_reduce_output", None) is not None:
            return True
        for held in getattr(group, "fsdp_params", ()):
            whole = getattr(held, "_unsharded_param", None)
            if getattr(whole, "grad", None) is not None:
                return True
            if getattr(held, "unsharded_accumulated_grad", None) is not None:
                return True
    return False


def _is_unused(gradient: torch.Tensor) -> bool:
    return getattr(gradient, USED, None) != _version(gradient)


def _is_not_zero(gradient: torch.Tensor) -> bool:
    values = gradient._values() if gradient.is_sparse else gradient  # noqa: SLF001 - not coalesced
    return bool(values.any())


def _version(gradient: torch.Tensor) -> int:
    return local(gradient)._version  # noqa: SLF001 - public by name in PyTorch's own documents


def _ddp_synchronizes(module: torch.nn.Module) -> bool:
    wrappers = [part for part in module.modules() if isinstance(part, DistributedDataParallel)]
    return all(getattr(wrapper, DDP_SYNCHRONIZES, True) for wrapper in wrappers)


def _name(rank: int) -> str:
    return f"trainrun-rank{rank}.pt"


def _load(folder: Path, rank: int) -> dict[str, Any]:
    path = folder / _name(rank)
    if not path.exists():
        raise ValueError(
            f"{folder} has no {path.name}: another tool saved this checkpoint, so it cannot be "
            "resumed here"
        )
    return load_file(path)


def load_file(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """Return a file's content; with `mmap`, tensors are read only when they are used."""
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    return content
