"""Where a `ResumableLoader` is in its data: one kind of source for each kind of dataset.

Worker processes make whole batches. The random numbers that a dataset draws for a batch depend on
the loader's seed and the batch's place in the epoch alone: neither on the number of workers nor on
where the epoch was begun.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

from trainrun.torch.random_state import seed_of, seeded


def as_is(batch: Any) -> Any:
    """Collate nothing: the batch is one already."""
    return batch


@dataclass(frozen=True, slots=True)
class Request:
    """Which batch of a map-style dataset is wanted."""

    place: tuple[int, ...]
    """What its random numbers depend on."""
    samples: list[int]


class MapBatches(Dataset[Any]):
    """A map-style dataset by batches instead of samples."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> None:
        self._dataset = dataset
        self._collate = collate

    def __getitem__(self, request: Request) -> tuple[int, Any]:
        """Return how many samples the batch has, and the batch."""
        with seeded(*request.place):
            if hasattr(self._dataset, "__getitems__"):
                samples = self._dataset.__getitems__(request.samples)
            else:
                samples = [self._dataset[index] for index in request.samples]
            return len(request.samples), self._collate(samples)


@dataclass(slots=True)
class Shard:
    """How far one worker of one rank has come in an iterable dataset."""

    batches: int = 0
    """Batches of this epoch that were handed to the training."""
    dataset: dict[str, Any] | None = None
    """The dataset's own state behind them, where it has one."""
    ended: bool = False
    """Whether nothing is behind them: many a dataset's state then says that it begins anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What all workers of a rank read of an iterable dataset."""

    seed: int
    epoch: int
    first: int
    """Which shard of the rank hands out the next batch."""
    shards: list[Shard]
    split: bool
    """Whether each shard takes every n-th sample; otherwise the dataset shares itself out."""
    share: Share


class Piece(NamedTuple):
    """A batch of an iterable dataset, and how far its shard is behind it."""

    shard: int
    batch: Any
    dataset: dict[str, Any] | None
    ended: bool


class IterableBatches(IterableDataset[Piece | None]):
    """An iterable dataset from where each shard stands, by batches.

    Worker i always has shard i: a dataset that shares itself out goes by the worker's number.
    """

    def __init__(self, dataset: Any, reading: Reading) -> None:
        self._dataset = dataset
        self._reading = reading

    def __iter__(self) -> Iterator[Piece | None]:
        """Go on behind the batches that this worker's shard has handed out.

        None stands for a turn that was over before, as a DataLoader begins with worker 0.
        """
        worker, reading, share = get_worker_info(), self._reading, self._reading.share
        number = worker.id if worker else 0
        shard = reading.shards[number]
        if number < reading.first:
            yield None
        # All shards that share the samples of one order draw the same numbers.
        own = () if reading.split else (share.rank, number)
        with seeded(reading.seed, reading.epoch, *own):
            iterator = self._begin(shard)
        for count in itertools.count(0 if shard.dataset is None else shard.batches):
            with seeded(reading.seed, reading.epoch, count, *own):
                samples = self._samples(iterator, share.rank * len(reading.shards) + number)
                if not samples or (share.drop_last and len(samples) < share.batch_size):
                    return
                if count < shard.batches:
                    continue
                batch = share.collate(samples)
            ended = len(samples) < share.batch_size
            yield Piece(number, batch, self._state(), ended)

    def _begin(self, shard: Shard) -> Iterator[Any]:
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(self._reading.epoch)
        if shard.dataset is not None:
            self._dataset.load_state_dict(shard.dataset)
        return iter(()) if shard.ended else iter(self._dataset)

    def _samples(self, iterator: Iterator[Any], number: int) -> list[Any]:
        """This shard's samples of the next batch; none of a round that is too short for all."""
        share = self._reading.share
        if not self._reading.split:
            return list(islice(iterator, share.batch_size))
        among, samples = share.world_size * len(self._reading.shards), []
        for _ in range(share.batch_size):
            each = list(islice(iterator, among))
            if len(each) < among:
                break
            samples.append(each[number])
        return samples

    def _state(self) -> dict[str, Any] | None:
        return self._dataset.state_dict() if hasattr(self._dataset, "state_dict") else None


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
            _check_no_state_loaded(self._loads - loads)
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


def _check_no_state_loaded(since: int) -> None:
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
        batches = IterableBatches(self._dataset, self._reading())
        piece: Piece | None = None
        for piece in share.loader(batches, generator=generator):
            if piece is None:
                continue
            shard = self._shards[piece.shard]
            shard.batches, shard.dataset = shard.batches + 1, piece.dataset
            shard.ended = piece.ended
            self._first = (piece.shard + 1) % len(self._shards)
            yield piece.batch
            _check_no_state_loaded(self._loads - loads)
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
            split=self._split,
            share=self._share,
        )
