"""A distributed sampler that can begin at any sample of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.data import Sampler

from trainrun.context import get_context

if TYPE_CHECKING:
    from collections.abc import Iterator


class ResumableSampler(Sampler[int]):
    """Each rank's share of a shuffled epoch, from a position counted over all ranks.

    The order of an epoch depends on seed and epoch alone; rank r takes every world_size-th sample
    from the r-th on. The position counts samples that were handed to the training, so batches that
    a DataLoader has prefetched are not lost. What does not divide by the world size is left out
    (another few samples in each epoch).
    """

    def __init__(
        self,
        length: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        """Sample from `range(length)`; rank and world size are `get_context()`'s by default.

        Raises ValueError where there are fewer samples than ranks.
        """
        context = get_context()
        self.rank = context.rank if rank is None else rank
        self.world_size = context.world_size if world_size is None else world_size
        if length < self.world_size:
            raise ValueError(f"{length} samples cannot be shared by {self.world_size} ranks")
        self.length = length
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        """The epoch that is being consumed, from 0."""
        self.position = 0
        """Samples of this epoch that all ranks together have consumed."""

    def __iter__(self) -> Iterator[int]:
        """The rest of this epoch, for this rank."""
        return iter(self._order()[self.position + self.rank : self._usable : self.world_size])

    def __len__(self) -> int:
        """Number of samples that this rank has left in this epoch."""
        return max(0, self._usable - self.position) // self.world_size

    def advance(self, samples: int) -> None:
        """Count that each rank has consumed this many more samples, or what the epoch had left."""
        self.position = min(self._usable, self.position + samples * self.world_size)

    def next_epoch(self) -> None:
        """Begin the next epoch."""
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """What a resume needs; the same on every rank."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where `state_dict` was taken, also with another world size."""
        self.epoch, self.position = state["epoch"], state["position"]
        self.seed = state["seed"]

    @property
    def _usable(self) -> int:
        return self.length // self.world_size * self.world_size

    def _order(self) -> list[int]:
        if not self.shuffle:
            return list(range(self.length))
        # A generator of its own: shuffling must not draw from the random numbers of the training.
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order: list[int] = torch.randperm(self.length, generator=generator).tolist()
        return order
