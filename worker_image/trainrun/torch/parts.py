"""What `State` asks of its parts: that they come back as they were, or that it is said why not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, IterableDataset

from trainrun._process.context import get_context
from trainrun.torch.random_state import seed_of

OF_PYTORCH = (torch.nn.Module, torch.optim.Optimizer, LRScheduler, torch.amp.GradScaler)
"""They take over all of a state, or raise. Their state is the same on every rank."""
PLAIN = (bool, int, float, complex, str, bytes, set, frozenset, type(None))


def check_part(name: str, part: Any) -> None:
    """Raises TypeError or ValueError for a part whose state could not be put back."""
    if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
        raise TypeError(
            f"State({name}=...): a {type(part).__name__} has no state_dict() and "
            "load_state_dict(): give an object that returns its values by the one and takes them "
            "over by the other"
        )
    if type(part).__name__ == "FullyShardedDataParallel":
        raise TypeError(f"State({name}=...): shard it with fully_shard (FSDP2) instead")
    # A metric of torchmetrics, or a collection of them.
    if isinstance(part, torch.nn.Module) and hasattr(part, "persistent") and not part.state_dict():
        raise ValueError(
            f"State({name}=...): the state_dict() of a {type(part).__name__} is empty: call its "
            "persistent(True) before"
        )
    if fault := fault_of_loader(part):
        raise ValueError(f"State({name}=...): {fault}")


def fault_of_loader(loader: Any) -> str:
    """Say what is wrong with a StatefulDataLoader of torchdata; "" where nothing is."""
    if not isinstance(loader, DataLoader):
        return ""
    if loader.persistent_workers and isinstance(loader.dataset, IterableDataset):
        return (
            "with persistent_workers=True an iterable dataset would begin each later epoch where "
            "it was resumed: leave persistent_workers out"
        )
    shared = loader.generator is not None and loader.generator is vars(loader.sampler).get(
        "generator"
    )
    if shared and loader.num_workers == 0:
        return (
            "the sampler's generator is the loader's own, of which a resume draws a number less, "
            "so later epochs would have another order: leave generator= out"
        )
    return ""


def keep_apart(part: Any) -> None:
    """Give a DataLoader without a generator one, or each iteration draws from the training's."""
    if isinstance(part, DataLoader) and part.generator is None:
        context = get_context()
        seed = seed_of(context.rank, context.attempt)  # of its workers, not of the order
        part.generator = torch.Generator().manual_seed(seed)


def load_part(name: str, part: Any, state: Any) -> None:
    """Let a part take over its state.

    Raises ValueError where an iteration goes on as it began before, and where a value of the state
    is another one than in the checkpoint and none that `load_state_dict` has changed.
    """
    if isinstance(part, OF_PYTORCH):
        part.load_state_dict(state)
        return
    iteration, before = _iteration(part), _state(part)
    part.load_state_dict(state)
    if _is_still_held(iteration):
        raise ValueError(
            f"State({name}=...): an iteration over this {type(part).__name__} has begun before "
            "load(), and would go on from there: call iter() after it, and keep no older iterator"
        )
    after = _state(part)
    for path, saved in _values(state):
        now = after.get(path, saved)
        if not _equal(now, saved) and _equal(now, before.get(path, saved)):
            raise ValueError(
                f"State({name}=...): load_state_dict() of a {type(part).__name__} has not taken "
                f"over state_dict(){path}: let it do so, or leave that out of state_dict()"
            )


def _iteration(part: Any) -> weakref.ref[Any] | None:
    begun = part._iterator if isinstance(part, DataLoader) else None  # noqa: SLF001 - no other name
    return None if begun is None else weakref.ref(begun)


def _is_still_held(iteration: weakref.ref[Any] | None) -> bool:
    """Whether somebody else holds it: the loader has left it."""
    if iteration is None or iteration() is None:
        return False
    gc.collect()
    return iteration() is not None


def _state(part: Any) -> dict[str, Any]:
    """Its values by their places; none of what takes a state over when it is iterated over."""
    if hasattr(part, "__iter__"):
        return {}
    try:
        return dict(_values(part.state_dict()))
    except Exception:  # noqa: BLE001 - a user's; it may have none before the first step
        return {}


def _values(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All plain values and tensors, the lengths of lists, and whether a mapping has anything.

    Not how much: a script that is changed between two attempts may save more or less.
    """
    if isinstance(state, Mapping):
        yield path, bool(state)
        for key, value in state.items():
            yield from _values(value, f"{path}[{key!r}]")
    elif isinstance(state, (list, tuple)):
        yield path, len(state)
        for number, value in enumerate(state):
            yield from _values(value, f"{path}[{number}]")
    elif isinstance(state, (torch.Tensor, *PLAIN)):
        yield path, state


def _equal(one: Any, other: Any) -> bool:
    """Whether they are, bit for bit; what a part has converted counts as equal."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = (one.dtype, one.shape, one.layout) == (other.dtype, other.shape, torch.strided)
        return not alike or torch.equal(_bits(one), _bits(other))
    converted = isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor)
    return converted or one == other or repr(one) == repr(other)  # NaN is not equal to itself


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
