"""What each rank has alone, in a file beside those that a framework saves: random numbers, buffers.

Frameworks save what all ranks share; some save no random numbers at all.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from trainrun._process.context import get_context
from trainrun.torch import modules, random_state

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def write(
    folder: Path,
    models: Sequence[torch.nn.Module],
    *,
    shared: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    """Write this rank's file.

    Args:
        folder: Where the rank's part of a checkpoint lies.
        models: With DistributedDataParallel around them, where they have it.
        shared: What is the same on every rank; plain values and tensors.
        more: What is not; plain values and tensors. Its `rng` takes the place of what is now.
    """
    context = get_context()
    own = {
        "world_size": context.world_size,
        "shared": shared or {},
        "modules": [modules.own_state(model) for model in models],
        "rng": random_state.capture(),
    }
    torch.save({**own, **more}, folder / _name(context.rank))


def read(folder: Path) -> dict[str, Any]:
    """Return what this rank wrote; `shared` alone, and a warning, where the ranks were others."""
    context = get_context()
    # Rank 0 always wrote one, so it is there whatever the number of ranks was.
    content = _load(folder, 0)
    if content["world_size"] == context.world_size:
        return _load(folder, context.rank)
    warnings.warn(
        f"the checkpoint was saved by {content['world_size']} ranks, and there are "
        f"{context.world_size}: each rank's own random numbers and buffers began anew, so the "
        "training goes on but not bit for bit",
        stacklevel=2,
    )
    return {"shared": content["shared"]}


def restore(own: dict[str, Any], models: Sequence[torch.nn.Module]) -> None:
    """Take over what `read` returned."""
    for model, state in zip(models, own.get("modules", []), strict=False):
        modules.load_own_state(model, state)
    if "rng" in own:
        random_state.restore(own["rng"])


def _name(rank: int) -> str:
    return f"trainrun-rank{rank}.pt"


def _load(folder: Path, rank: int) -> dict[str, Any]:
    path = folder / _name(rank)
    if not path.exists():
        raise ValueError(
            f"{folder} has no {path.name}: something else saved this checkpoint, which cannot be "
            "gone on from here"
        )
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content
