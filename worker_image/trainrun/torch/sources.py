"""The position of a `ResumableLoader` in its data: one class for each kind of dataset.

Worker processes make whole batches. The random numbers that a dataset draws for a batch depend only
on the loader's seed and the batch's position in the epoch, not on the number of workers or on where
the epoch was resumed.
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
    """Return the batch unchanged: it is already collated."""
    return batch


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a batch of a map-style dataset."""

    place: tuple[int, ...]
    """Numbers that seed its random numbers."""
    samples: list[int]


class MapBatches(Dataset[Any]):
    """A map-style dataset in batches instead of samples."""

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
    """The progress of one worker of one rank in an iterable dataset."""

    batches: int = 0
    """Number of batches of this epoch handed to the training."""
    dataset: dict[str, Any] | None = None
    """The dataset's own state after them, if it has one."""
    ended: bool = False
    """Whether nothing follows them: the state of many datasets then means a new start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How all workers of a rank read an iterable dataset."""

    seed: int
    epoch: int
    first: int
    """The shard of the rank that hands out the next batch."""
    shards: list[Shard]
    split: bool
    """Whether each shard takes every n-th sample; otherwise the dataset splits itself."""
    share: Share


class Piece(NamedTuple):
    """A batch of an iterable dataset, and the state of its shard after it."""

    shard: int
    batch: Any
    dataset: dict[str, Any] | None
    ended: bool


class IterableBatches(IterableDataset[Piece | None]):
    """An iterable dataset in batches, from each shard's position on.

    Worker i always has shard i: a dataset that splits itself uses the worker's number.
    """

    def __init__(self, dataset: Any, reading: Reading) -> None:
        self._dataset = dataset
        self._reading = reading

    def __iter__(self) -> Iterator[Piece | None]:
        """Continue after the batches that this worker's shard has handed out.

        Yields None for a turn that was over before, since a DataLoader begins with worker 0.
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
        """This shard's samples of the next batch; none from a round too short for all shards."""
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
    """A rank's share of the data, and how to load it."""

    rank: int
    world_size: int
    batch_size: int
    """Samples per batch on one rank."""
    drop_last: bool
    num_workers: int
    collate: Callable[[list[Any]], Any]
    options: dict[str, Any]
    """More options of DataLoader."""

    def loader(self, dataset: Any, **more: Any) -> DataLoader[Any]:
        """Return a DataLoader of `dataset`, which yields batches, with this rank's workers."""
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
        """Raises ValueError if a rank would have no batch."""
        self.epoch = 0
        self._seed = seed
        self._position = 0
        self._handed_out = False
        """Whether this epoch's last batch was handed out, but the next epoch has not begun."""
        self._loads = 0
        self._length = len(dataset)
        self._shuffle = shuffle
        self._share = share
        if len(self) == 0:
            raise ValueError(
                f"{self._length} samples are too few for {share.world_size} ranks with batches of "
                f"{share.batch_size}{' and drop_last=True' if share.drop_last else ''}"
            )
        self._generator = torch.Generator()
        self._loader = share.loader(
            MapBatches(dataset, share.collate), sampler=_Requests(self), generator=self._generator
        )

    def __iter__(self) -> Iterator[Any]:
        if self._handed_out:
            self._begin_next()  # a loop that counts batches never reaches the end of an iteration
        return self._rest()

    def __len__(self) -> int:
        return self._batches(0)

    def state_dict(self) -> dict[str, Any]:
        """The state; the same on all ranks."""
        return {
            "epoch": self.epoch,
            "position": self._position,
            "seed": self._seed,
            "length": self._length,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state. Raises ValueError for a state of another dataset."""
        if state.get("length") != self._length:
            raise ValueError(
                f"the loader's state belongs to a dataset of {state.get('length')} samples, but "
                f"this one has {self._length}, so the position would not match: use the same one"
            )
        self.epoch, self._seed = state["epoch"], state["seed"]
        self._position, self._handed_out = state["position"], False
        self._loads += 1

    def requests(self) -> Iterator[Request]:
        """Requests for this rank's remaining batches of this epoch."""
        share, size, begin = self._share, self._share.batch_size, self._position
        # Split the rest among the current ranks, so that all have the same number of batches.
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
        """Number of this rank's batches from a position on."""
        samples, size = (self._length - begin) // self._share.world_size, self._share.batch_size
        return samples // size if self._share.drop_last else -(-samples // size)

    def _order(self) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(self._length)
        # A separate generator: shuffling must not draw from the training's random numbers.
        generator = torch.Generator().manual_seed(seed_of(self._seed, self.epoch))
        return torch.randperm(self._length, generator=generator)


def _check_no_state_loaded(since: int) -> None:
    """Raises RuntimeError if a state was loaded after an iteration began."""
    if since:
        raise RuntimeError(
            "this iteration over a ResumableLoader began before its state was loaded: call iter() "
            "after load(), and keep no older iterator"
        )


class _Requests(Sampler[Request]):
    """The sampler from which PyTorch gets the request for the next batch."""

    def __init__(self, source: MapSource) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Request]:
        return self._source.requests()


class IterableSource:
    """An iterable dataset: each worker of each rank has a shard and counts its batches."""

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
                f"the dataset has too few samples for a batch on each of {share.world_size} ranks "
                f"with {len(self._shards)} workers"
            )
        self.epoch, self._first, self._shards = self.epoch + 1, 0, self._fresh()

    def __len__(self) -> int:
        raise TypeError("a loader of an iterable dataset has no len()")

    def state_dict(self) -> dict[str, Any]:
        """The state; each rank has its own."""
        return {
            "epoch": self.epoch,
            "seed": self._seed,
            "world_size": self._share.world_size,
            "first": self._first,
            "shards": [asdict(shard) for shard in self._shards],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state. Raises ValueError if it has other numbers of ranks or workers."""
        given = (state.get("world_size"), len(state.get("shards", ())))
        if given != (self._share.world_size, len(self._shards)):
            raise ValueError(
                f"the loader's state belongs to {given[0]} ranks with {given[1]} workers each, but "
                f"there are {self._share.world_size} with {len(self._shards)}: an iterable dataset "
                "needs the same numbers to resume"
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
            shards=[replace(shard) for shard in self._shards],  # copies: workers read them later
            split=self._split,
            share=self._share,
        )
