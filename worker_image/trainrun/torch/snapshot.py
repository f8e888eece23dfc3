"""Copies of a state in memory, in buffers that are kept from save to save.

A state is taken apart as `torch.save` does it: pickled, its storages beside. So tensors that share
a storage share its copy, and everything that `torch.save` can write can be copied.
"""

from __future__ import annotations

import io
import pickle
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import memmove
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch.storage import TypedStorage

from trainrun._common.kernel import find_counter, memory_left
from trainrun._process.context import get_context

T = TypeVar("T")

RESERVE = 0.1
"""Part of the free memory that a copy leaves to the training."""
MOST_THREADS = 8
"""More do not copy faster: they share the memory's bandwidth."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A copy that does not fit into memory, in bytes."""

    needed: int
    left: int
    """What this rank may still take."""


class SnapshotBuffers:
    """The memory for one copy at a time; page-locked for the tensors of a GPU.

    Keeps what it has, so that later copies fill memory that is there already, and grows when a
    state does.
    """

    def __init__(self) -> None:
        self._kept: list[torch.UntypedStorage] = []

    def copy(self, content: T) -> Callable[[], T] | Shortage:
        """Copy a state; the copy before it becomes invalid.

        Later changes of the state do not reach the copy. Returns what rebuilds the state from the
        copy, on the CPU, for use in any thread. Raises what pickling the content raises.
        """
        pickled, storages = _taken_apart(content)
        buffers = self._fitting(storages)
        pairs = list(zip(storages, buffers, strict=True))
        needed = sum(_room_of(storage) for storage, buffer in pairs if buffer is None)
        if needed and needed > (left := _room_left()):
            return Shortage(needed, left)
        self._kept = []  # frees what no longer fits, before the rest is allocated
        copies = [_buffer_for(s) if buffer is None else buffer for s, buffer in pairs]
        _copy(storages, copies)
        self._kept = copies
        return lambda: _put_together(pickled, copies)

    def _fitting(self, storages: list[torch.UntypedStorage]) -> list[torch.UntypedStorage | None]:
        """For each storage a kept buffer of its size; None: there is none."""
        free: dict[tuple[int, bool], list[torch.UntypedStorage]] = {}
        for kept in self._kept:
            free.setdefault((kept.nbytes(), kept.is_pinned()), []).append(kept)
        wanted = [free.get((each.nbytes(), _is_remote(each))) for each in storages]
        return [fitting.pop() if fitting else None for fitting in wanted]


class _Pickler(pickle.Pickler):
    """Pickles a state without its storages."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.storages: list[torch.UntypedStorage] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, value: object) -> tuple[int, torch.dtype | None] | None:
        """For a storage its number, and its type unless it is untyped."""
        if isinstance(value, TypedStorage):
            return self._number_of(value._untyped_storage), value.dtype  # noqa: SLF001 - as torch.save
        if isinstance(value, torch.UntypedStorage):
            return self._number_of(value), None
        return None

    def _number_of(self, storage: torch.UntypedStorage) -> int:
        number = self._numbers.setdefault(storage._cdata, len(self.storages))  # noqa: SLF001 - likewise
        if number == len(self.storages):
            self.storages.append(storage)
        return number


class _Unpickler(pickle.Unpickler):
    """Rebuilds a state on other storages."""

    def __init__(self, pickled: bytes, storages: list[torch.UntypedStorage]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._storages = storages

    def persistent_load(self, key: Any) -> object:
        """The storage of a number."""
        number, dtype = key
        storage: Any = self._storages[number]
        typed: Any = TypedStorage
        return (
            storage if dtype is None else typed(wrap_storage=storage, dtype=dtype, _internal=True)
        )


def _taken_apart(content: object) -> tuple[bytes, list[torch.UntypedStorage]]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(content)
    return file.getvalue(), pickler.storages


def _put_together(pickled: bytes, storages: list[torch.UntypedStorage]) -> Any:
    return _Unpickler(pickled, storages).load()


def _copy(storages: list[torch.UntypedStorage], copies: list[torch.UntypedStorage]) -> None:
    """Copy the bytes with as many threads as PyTorch computes with."""
    pairs = list(zip(copies, storages, strict=True))
    for copy, storage in pairs:
        if _is_remote(storage):
            copy.copy_(storage, non_blocking=True)
    # The C library copies faster than copy_(): past the caches, where a tensor is large.
    moves = [(copy.data_ptr(), s.data_ptr(), s.nbytes()) for copy, s in pairs if not _is_remote(s)]
    if (threads := min(torch.get_num_threads(), MOST_THREADS)) > 1:
        with ThreadPoolExecutor(threads) as pool:
            deque(pool.map(lambda move: memmove(*move), moves), maxlen=0)
    else:
        for move in moves:
            memmove(*move)
    for device in {storage.device for storage in storages if _is_remote(storage)}:
        torch.accelerator.current_stream(device).synchronize()


def _is_remote(storage: torch.UntypedStorage) -> bool:
    return storage.device.type != "cpu"


def _buffer_for(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    size, locked = storage.nbytes(), _is_remote(storage)
    return torch.empty(size, dtype=torch.uint8, pin_memory=locked).untyped_storage()


def _room_of(storage: torch.UntypedStorage) -> int:
    """Bytes of a new buffer: PyTorch rounds page-locked memory up to a power of two."""
    size = storage.nbytes()
    return 1 << (size - 1).bit_length() if _is_remote(storage) and size else size


def _room_left() -> int:
    """Bytes that a copy may take: the ranks of a worker copy at the same time."""
    return int(memory_left(find_counter()) * (1 - RESERVE)) // get_context().local_world_size
