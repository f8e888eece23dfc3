"""The random number generators of a process: PyTorch's (CPU, GPU), Python's, NumPy's if in use.

Also the warm-up iteration, which does not change them or the model.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import torch

RandomState = dict[str, Any]
"""Plain containers and tensors, so that `torch.load(weights_only=True)` reads it."""


def capture() -> RandomState:
    """Return the state of all generators in use."""
    state = _capture_cpu()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: RandomState) -> None:
    """Restore all generators in use to a captured state."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    numpy = sys.modules.get("numpy")
    if "numpy" in state and numpy is not None:
        legacy = state["numpy"]
        key = numpy.array(legacy["state"]["key"], dtype=numpy.uint32)
        numpy.random.set_state({**legacy, "state": {**legacy["state"], "key": key}})


def warm_up(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> None:
    """Run one forward and backward pass and discard the results.

    DistributedDataParallel reorders its gradient buckets after the first iteration of each process.
    So the first step after a start sums in another order than the same step in the middle of a run,
    and the weights differ. Call this at each start (fresh or resumed), on all ranks, before loading
    the state.

    Args:
        model: The wrapped model. Afterwards its gradients are None; its buffers (batch norm) and
            all random number generators are unchanged.
        loss: Runs the model on any batch and returns a loss with the same graph as in training.
    """
    buffers, state = {name: buffer.clone() for name, buffer in model.named_buffers()}, capture()
    try:
        loss().backward()  # type: ignore[no-untyped-call]
    finally:
        restore(state)
    for parameter in model.parameters():
        parameter.grad = None
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(buffers[name])


@contextmanager
def seeded(*place: int) -> Iterator[None]:
    """Seed the CPU generators in the block from these numbers alone.

    Restores them afterwards, so that data loading does not affect the training's random numbers.
    """
    state, seed = _capture_cpu(), seed_of(*place)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed() would seed the GPUs as well
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        restore(state)


def seed_of(*place: int) -> int:
    """Return a seed that differs for each sequence of numbers."""
    digest = blake2b(repr(place).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def _capture_cpu() -> RandomState:
    state: RandomState = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        legacy = numpy.random.get_state(legacy=False)
        key = legacy["state"]["key"].tolist()
        state["numpy"] = {**legacy, "state": {**legacy["state"], "key": key}}
    return state
