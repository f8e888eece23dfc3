"""Where a `ResumableLoader` is in its data: one kind of source for each kind of dataset."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Sampler

from trainrun.torch.batches import (
    IterableBatches,
    MapBatches,
    Piece,
    Reading,
    Request,
    Shard,
    as_is,
)
from trainrun.torch.random_state import seed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a rank has of the data, and how it is loaded."""

    rank: int
    world_size: int
    batch_size: int
    """Samples of one rank."""
    drop_last: bool
    num_workers: int
    collate: Callable[[list[Any]], Any]
    options: dict[str, Any]
    """More of DataLoader's."""

    def loader(self, dataset: Any, **more: Any) -> DataLoader[Any]:
        """Load what `dataset` gives, batches already, with the workers of this rank."""
        return DataLoader(
            dataset,
            batch_size=None,
            collate_fn=as_is,
            num_workers=self.num_workers,
            **self.options,
            **more,
        )


class MapSource:
    """A map-style dataset: the position counts samples, over all ranks."""

    same_on_every_rank = True

    def __init__(self, dataset: Any, share: Share, *, seed: int, shuffle: bool) -> None:
        """Raises ValueError where a rank would have no batch."""
        self.epoch = 0
        self._seed = seed
        self._position = 0
        self._handed_out = False
        """Whether this epoch's last batch was handed out, and the epoch not left yet."""
        self._loads = 0
        self._length = len(dataset)
        self._shuffle = shuffle
        self._share = share
        if len(self) == 0:
            raise ValueError(
                f"{self._length} samples cannot be shared by {share.world_size} ranks in batches "
                f"of {share.batch_size}{' with drop_last=True' if share.drop_last else ''}"
            )
        self._generator = torch.Generator()
        self._loader = share.loader(
            MapBatches(dataset, share.collate), sampler=_Requests(self), generator=self._generator
        )

    def __iter__(self) -> Iterator[Any]:
        if self._handed_out:
            self._begin_next()  # who counts batches never asks for the end of an epoch
        return self._rest()

    def __len__(self) -> int:
        return self._batches(0)

    def state_dict(self) -> dict[str, Any]:
        """The same on every rank."""
        return {
            "epoch": self.epoch,
            "position": self._position,
            "seed": self._seed,
            "length": self._length,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on there. Raises ValueError for a state of another dataset."""
        if state.get("length") != self._length:
            raise ValueError(
                f"the loader's state is of a dataset of {state.get('length')} samples, and this "
                f"one has {self._length}: its place in the epoch would be another one"
            )
        self.epoch, self._seed = state["epoch"], state["seed"]
        self._position, self._handed_out = state["position"], False
        self._loads += 1

    def requests(self) -> Iterator[Request]:
        """The batches that this rank has left in this epoch."""
        share, size, begin = self._share, self._share.batch_size, self._position
        # What is left divides by the ranks that there are now: all have as many batches.
        end = begin + (self._length - begin) // share.world_size * share.world_size
        mine = self._order()[begin + share.rank : end : share.world_size]
        for start in range(0, len(mine), size):
            samples = mine[start : start + size].tolist()
            if len(samples) == size or not share.drop_last:
                position = begin + start * share.world_size
                yield Request((self._seed, self.epoch, position, share.rank), samples)

    def _rest(self) -> Iterator[Any]:
        self._generator.manual_seed(seed_of(self._seed, self.epoch, self._share.rank))
        left, loads = self._batches(self._position), self._loads
        for number, (samples, batch) in enumerate(self._loader, start=1):
            self._position += samples * self._share.world_size
            self._handed_out = number == left
            yield batch
            _check_that_none_was_loaded(self._loads - loads)
        self._begin_next()

    def _begin_next(self) -> None:
        self.epoch, self._position, self._handed_out = self.epoch + 1, 0, False

    def _batches(self, begin: int) -> int:
        """How many this rank has left from a position on."""
        samples, size = (self._length - begin) // self._share.world_size, self._share.batch_size
        return samples // size if self._share.drop_last else -(-samples // size)

    def _order(self) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(self._length)
        # A generator of its own: shuffling must not draw from the random numbers of the training.
        generator = torch.Generator().manual_seed(seed_of(self._seed, self.epoch))
        return torch.randperm(self._length, generator=generator)


def _check_that_none_was_loaded(since: int) -> None:
    """Raises RuntimeError where an iteration would go on in a state of another one."""
    if since:
        raise RuntimeError(
            "this iteration over a ResumableLoader has begun before its state was loaded: call "
            "iter() after load(), and keep no older iterator"
        )


class _Requests(Sampler[Request]):
    """What PyTorch asks for the next batch."""

    def __init__(self, source: MapSource) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Request]:
        return self._source.requests()


class IterableSource:
    """An iterable dataset: each worker of each rank has a shard of it, and counts its batches."""

    same_on_every_rank = False

    def __init__(self, dataset: Any, share: Share, *, seed: int, split: bool) -> None:
        self.epoch = 0
        self._dataset = dataset
        self._share = share
        self._seed = seed
        self._split = split
        self._first = 0
        self._loads = 0
        self._shards = self._fresh()

    def __iter__(self) -> Iterator[Any]:
        share, begins = self._share, all(shard.batches == 0 for shard in self._shards)
        loads = self._loads
        generator = torch.Generator().manual_seed(seed_of(self._seed, self.epoch, share.rank))
        batches = IterableBatches(self._dataset, share.collate, self._reading())
        piece: Piece | None = None
        for piece in share.loader(batches, generator=generator):
            if piece is None:
                continue
            shard = self._shards[piece.shard]
            shard.batches, shard.dataset = shard.batches + 1, piece.dataset
            shard.ended = piece.ended
            self._first = (piece.shard + 1) % len(self._shards)
            yield piece.batch
            _check_that_none_was_loaded(self._loads - loads)
        if begins and piece is None:
            raise ValueError(
                f"the dataset has no batch for each of {share.world_size} ranks with "
                f"{len(self._shards)} workers"
            )
        self.epoch, self._first, self._shards = self.epoch + 1, 0, self._fresh()

    def __len__(self) -> int:
        raise TypeError("a loader of an iterable dataset has no len()")

    def state_dict(self) -> dict[str, Any]:
        """Another one on each rank."""
        return {
            "epoch": self.epoch,
            "seed": self._seed,
            "world_size": self._share.world_size,
            "first": self._first,
            "shards": [asdict(shard) for shard in self._shards],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on there. Raises ValueError for a state of other numbers of ranks and workers."""
        given = (state.get("world_size"), len(state.get("shards", ())))
        if given != (self._share.world_size, len(self._shards)):
            raise ValueError(
                f"the loader's state is of {given[0]} ranks with {given[1]} workers each, and "
                f"there are {self._share.world_size} with {len(self._shards)}: an iterable dataset "
                "is resumed with the same numbers"
            )
        self.epoch, self._seed, self._first = state["epoch"], state["seed"], state["first"]
        self._shards = [Shard(**shard) for shard in state["shards"]]
        self._loads += 1

    def _fresh(self) -> list[Shard]:
        return [Shard() for _ in range(max(1, self._share.num_workers))]

    def _reading(self) -> Reading:
        return Reading(
            seed=self._seed,
            epoch=self.epoch,
            first=self._first,
            shards=[replace(shard) for shard in self._shards],  # it goes on while workers read it
            rank=self._share.rank,
            world_size=self._share.world_size,
            split=self._split,
            batch_size=self._share.batch_size,
            drop_last=self._share.drop_last,
        )
