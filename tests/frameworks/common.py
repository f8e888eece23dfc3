"""What the trainings of all frameworks share."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import torch

import trainrun

STEPS = 24


def hang_before(step: int) -> None:
    """In the attempt that is named: stay before this step until a fault strikes."""
    while step == _where("HANG_BEFORE"):
        time.sleep(0.05)


def wait_after(step: int) -> None:
    """In the attempt that is named: stay behind this step until a checkpoint is asked for."""
    # Each rank asks until it is told to save, so all ranks make the same calls.
    while step == _where("WAIT_AFTER") and not trainrun.should_save():
        time.sleep(0.05)


def _where(what: str) -> int:
    return int(os.environ.get(f"{what}_{trainrun.get_context().attempt}", "-1"))


def tell_weights(model: torch.nn.Module) -> None:
    """Write them to a file of this rank, and to its output."""
    rank, weights = trainrun.get_context().rank, digest(model)
    Path(os.environ["OUT"], f"weights-{rank}").write_text(weights)
    print(f"weights of rank {rank}: {weights}", flush=True)


def digest(model: torch.nn.Module) -> str:
    """All bits of a model, or of this rank's shards of it, in a few."""
    sha = hashlib.sha256()
    for tensor in model.state_dict().values():
        own = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        sha.update(own.numpy().tobytes())
    return sha.hexdigest()
