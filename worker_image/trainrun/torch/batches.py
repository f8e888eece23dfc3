"""What a loader's worker processes do: make whole batches, with random numbers of their own place.

The random numbers that a dataset draws for a batch depend on the loader's seed and the batch's
place in the epoch alone: neither on the number of workers nor on where the epoch was begun.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import Dataset, IterableDataset, get_worker_info

from trainrun.torch.random_state import seeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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
    rank: int
    world_size: int
    split: bool
    """Whether each shard takes every n-th sample; otherwise the dataset shares itself out."""
    batch_size: int
    drop_last: bool


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

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[list[Any]], Any],
        reading: Reading,
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._reading = reading

    def __iter__(self) -> Iterator[Piece | None]:
        """Go on behind the batches that this worker's shard has handed out.

        None stands for a turn that was over before, as a DataLoader begins with worker 0.
        """
        worker, reading = get_worker_info(), self._reading
        number = worker.id if worker else 0
        shard = reading.shards[number]
        if number < reading.first:
            yield None
        # All shards that share the samples of one order draw the same numbers.
        own = () if reading.split else (reading.rank, number)
        with seeded(reading.seed, reading.epoch, *own):
            iterator = self._begin(shard)
        for count in itertools.count(0 if shard.dataset is None else shard.batches):
            with seeded(reading.seed, reading.epoch, count, *own):
                samples = self._samples(iterator, reading.rank * len(reading.shards) + number)
                if not samples or (reading.drop_last and len(samples) < reading.batch_size):
                    return
                if count < shard.batches:
                    continue
                batch = self._collate(samples)
            ended = len(samples) < reading.batch_size
            yield Piece(number, batch, self._state(), ended)

    def _begin(self, shard: Shard) -> Iterator[Any]:
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(self._reading.epoch)
        if shard.dataset is not None:
            self._dataset.load_state_dict(shard.dataset)
        return iter(()) if shard.ended else iter(self._dataset)

    def _samples(self, iterator: Iterator[Any], number: int) -> list[Any]:
        """This shard's samples of the next batch; none of a round that is too short for all."""
        if not self._reading.split:
            return list(islice(iterator, self._reading.batch_size))
        among, samples = self._reading.world_size * len(self._reading.shards), []
        for _ in range(self._reading.batch_size):
            each = list(islice(iterator, among))
            if len(each) < among:
                break
            samples.append(each[number])
        return samples

    def _state(self) -> dict[str, Any] | None:
        if not hasattr(self._dataset, "state_dict"):
            return None
        state: dict[str, Any] = self._dataset.state_dict()
        return state
