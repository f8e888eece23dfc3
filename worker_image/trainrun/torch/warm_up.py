"""The throw-away iteration that makes the first step of a process like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainrun.torch import random_state

if TYPE_CHECKING:
    from collections.abc import Callable


def warm_up(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> None:
    """Run one forward and backward whose results are thrown away.

    DistributedDataParallel orders its gradient buckets anew after the first iteration of each
    process. The first step after a start therefore sums in another order than the same step in the
    middle of a run, and the weights come out different. Call this at every start (fresh or
    resumed), on every rank, before the state is loaded.

    Args:
        model: The wrapped model; its gradients end up empty, its buffers (batch norm) and all
            random numbers as they were.
        loss: Runs the model on any batch and returns a loss with the graph of the training.
    """
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with random_state.untouched():
        loss().backward()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        parameter.grad = None
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])
