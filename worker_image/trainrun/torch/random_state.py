"""The random numbers of a process: PyTorch's on CPU and GPU, Python's, and NumPy's if in use.

Also the throw-away iteration which leaves them, and the model, as they are.
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
    """Return the state of every generator that is in use."""
    state = _capture_cpu()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore(state: RandomState) -> None:
    """Set every generator that is in use back to a captured state."""
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
    """Give the block random numbers on the CPU that depend on these numbers alone.

    After it they are as they were before, so that the training never notices what its data drew.
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
    """Return a seed that is another one for every sequence of numbers."""
    digest = blake2b(repr(place).encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def _capture_cpu() -> RandomState:
    state: RandomState = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        legacy = numpy.random.get_state(legacy=False)
        key = legacy["state"]["key"].tolist()
        state["numpy"] = {**legacy, "state": {**legacy["state"], "key": key}}
    return state
