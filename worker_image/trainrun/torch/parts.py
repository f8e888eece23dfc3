"""Checks of the parts of a `State`: each must restore completely, or raise why it cannot."""

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
"""Classes that load a state completely, or raise. Their state is the same on all ranks."""
PLAIN = (bool, int, float, complex, str, bytes, set, frozenset, type(None))


def check_part(name: str, part: Any) -> None:
    """Raises TypeError or ValueError for a part whose state could not be restored."""
    if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
        raise TypeError(
            f"State({name}=...): a {type(part).__name__} lacks state_dict() or load_state_dict(): "
            "pass an object with both methods"
        )
    if type(part).__name__ == "FullyShardedDataParallel":
        raise TypeError(
            f"State({name}=...): FullyShardedDataParallel is not supported; shard the model with "
            "fully_shard (FSDP2)"
        )
    # A metric of torchmetrics, or a collection of them.
    if isinstance(part, torch.nn.Module) and hasattr(part, "persistent") and not part.state_dict():
        raise ValueError(
            f"State({name}=...): the state_dict() of a {type(part).__name__} is empty: call its "
            "persistent(True) first"
        )
    if fault := fault_of_loader(part):
        raise ValueError(f"State({name}=...): {fault}")


def fault_of_loader(loader: Any) -> str:
    """Return the fault of a StatefulDataLoader of torchdata; "": none."""
    if not isinstance(loader, DataLoader):
        return ""
    if loader.persistent_workers and isinstance(loader.dataset, IterableDataset):
        return (
            "with persistent_workers=True an iterable dataset would begin each later epoch at the "
            "point where it was resumed: leave out persistent_workers"
        )
    shared = loader.generator is not None and loader.generator is vars(loader.sampler).get(
        "generator"
    )
    if shared and loader.num_workers == 0:
        return (
            "the sampler shares the loader's generator, from which a resume draws one number less, "
            "so later epochs would have another order: leave out generator="
        )
    return ""


def keep_apart(part: Any) -> None:
    """Give a DataLoader a generator if it has none; otherwise each iteration would draw from the
    training's."""
    if isinstance(part, DataLoader) and part.generator is None:
        context = get_context()
        seed = seed_of(context.rank, context.attempt)  # for its workers, not for the order
        part.generator = torch.Generator().manual_seed(seed)


def load_part(name: str, part: Any, state: Any) -> None:
    """Load the state of a part.

    Raises ValueError if an older iteration is still in use, and if a value differs from the
    checkpoint and `load_state_dict` did not change it.
    """
    if isinstance(part, OF_PYTORCH):
        part.load_state_dict(state)
        return
    iteration, before = _iteration(part), _state(part)
    part.load_state_dict(state)
    if _is_still_held(iteration):
        raise ValueError(
            f"State({name}=...): an iteration over this {type(part).__name__} began before load() "
            "and would continue from its old position: call iter() after load(), and keep no older "
            "iterator"
        )
    after = _state(part)
    for path, saved in _values(state):
        now = after.get(path, saved)
        if not _equal(now, saved) and _equal(now, before.get(path, saved)):
            raise ValueError(
                f"State({name}=...): load_state_dict() of a {type(part).__name__} did not restore "
                f"state_dict(){path}: restore it there, or leave it out of state_dict()"
            )


def _iteration(part: Any) -> weakref.ref[Any] | None:
    begun = part._iterator if isinstance(part, DataLoader) else None  # noqa: SLF001 - no other name
    return None if begun is None else weakref.ref(begun)


def _is_still_held(iteration: weakref.ref[Any] | None) -> bool:
    """Whether other code still references the iteration after the loader has dropped it."""
    if iteration is None or iteration() is None:
        return False
    gc.collect()
    return iteration() is not None


def _state(part: Any) -> dict[str, Any]:
    """The values of a part by their paths; empty for iterables, which load a state lazily."""
    if hasattr(part, "__iter__"):
        return {}
    try:
        return dict(_values(part.state_dict()))
    except Exception:  # noqa: BLE001 - user code; it may have no state before the first step
        return {}


def _values(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All plain values and tensors, the lengths of lists, and whether mappings are non-empty.

    Sizes of mappings may differ: a script changed between attempts may save more or fewer entries.
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
    """Whether two values are equal bit for bit; values that a part converted count as equal."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        alike = (one.dtype, one.shape, one.layout) == (other.dtype, other.shape, torch.strided)
        return not alike or torch.equal(_bits(one), _bits(other))
    converted = isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor)
    return converted or one == other or repr(one) == repr(other)  # NaN is not equal to itself


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
