"""A data loader that resumes in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from trainrun._process.context import get_context
from trainrun.torch.sources import IterableSource, MapSource, Share

DECIDED = ("sampler", "batch_sampler", "generator", "in_order")
"""Options of DataLoader that set the order, which this loader does itself."""


class ResumableLoader:
    """A DataLoader with a state: each rank's share of a dataset, in batches.

    An iteration yields the rest of the epoch `epoch` and then advances to the next one, so
    `for epoch in range(loader.epoch, epochs): for batch in loader: ...` resumes by itself. A loop
    that counts batches and stops after the last one starts the next epoch with its next iteration.
    A batch counts as consumed when it is handed out: save after training on it. Batches that
    workers have prefetched do not count.

    Map-style datasets: the order depends only on seed and epoch; rank r gets every world_size-th
    sample from the r-th on. A remainder that does not divide by the world size is left out; these
    are other samples in each epoch. A resume does not load past samples again, and the state fits
    any number of ranks and workers.

    Iterable datasets: each worker of each rank reads the dataset and keeps every n-th sample. A
    resume reads past samples again and discards them, unless the dataset has `state_dict()` and
    `load_state_dict()`. If the dataset has `set_epoch()`, it is called. A resume needs the same
    number of ranks and workers.

    Random numbers that the dataset and `collate_fn` draw from the global generators of PyTorch,
    Python and NumPy depend on seed, epoch and the position of the batch, in any process, and do not
    affect those of the training.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        split: bool = True,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] = default_collate,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Any,
    ) -> None:
        """Split a dataset among the ranks.

        Args:
            dataset: Map-style or iterable.
            batch_size: Samples per batch on this rank.
            shuffle: Use another order in each epoch; for map-style datasets.
            seed: Seed of the order and of the dataset's random numbers; the same on all ranks.
            drop_last: Leave out a smaller last batch.
            split: False for an iterable dataset that splits itself among ranks and workers.
            num_workers: Number of loading processes; with 0 this process loads.
            collate_fn: Makes a batch of a list of samples.
            rank: `get_context().rank` by default.
            world_size: `get_context().world_size` by default.
            options: More options of DataLoader: `pin_memory`, `prefetch_factor`, `worker_init_fn`,
                `multiprocessing_context`, `timeout`; `persistent_workers` for map-style datasets.

        Raises ValueError if a rank would have no batch, TypeError for options that set the order.
        """
        if wrong := [name for name in DECIDED if name in options]:
            raise TypeError(f"ResumableLoader sets {', '.join(wrong)} itself: leave it out")
        context = get_context()
        self.dataset = dataset
        self.batch_size = batch_size
        share = Share(
            rank=context.rank if rank is None else rank,
            world_size=context.world_size if world_size is None else world_size,
            batch_size=batch_size,
            drop_last=drop_last,
            num_workers=num_workers,
            collate=collate_fn,
            options=options,
        )
        self._source: MapSource | IterableSource
        if not isinstance(dataset, IterableDataset):
            self._source = MapSource(dataset, share, seed=seed, shuffle=shuffle)
        elif shuffle or options.get("persistent_workers"):
            raise ValueError(
                "an iterable dataset supports neither shuffle nor persistent_workers: drop both"
            )
        else:
            self._source = IterableSource(dataset, share, seed=seed, split=split)

    @classmethod
    def of(cls, loader: DataLoader[Any], *, seed: int = 0) -> ResumableLoader:
        """Convert a DataLoader: same dataset, batch size, workers and options, split among ranks.

        Args:
            loader: A DataLoader with `batch_size` and `shuffle=True` or False.
            seed: As above; the orders differ from the DataLoader's.

        Raises ValueError for one with its own sampler, batch sampler or generator.
        """
        sampler = loader.sampler
        shuffle = type(sampler) is RandomSampler and not sampler.replacement
        plain = shuffle or type(sampler) is SequentialSampler
        iterable = isinstance(loader.dataset, IterableDataset)
        if loader.batch_size is None or loader.generator is not None or not (plain or iterable):
            raise ValueError(
                "this DataLoader has its own sampler, batch_sampler or generator, which "
                "ResumableLoader would ignore: pass a DataLoader with only batch_size and shuffle"
            )
        options: dict[str, Any] = {
            "pin_memory": loader.pin_memory,
            "timeout": loader.timeout,
            "worker_init_fn": loader.worker_init_fn,
        }
        if loader.num_workers:
            options |= {
                "multiprocessing_context": loader.multiprocessing_context,
                "prefetch_factor": loader.prefetch_factor,
                "persistent_workers": loader.persistent_workers,
            }
        return cls(
            loader.dataset,
            loader.batch_size,
            shuffle=shuffle,
            seed=seed,
            drop_last=loader.drop_last,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            **options,
        )

    @property
    def epoch(self) -> int:
        """The current epoch, from 0."""
        return self._source.epoch

    @property
    def same_on_every_rank(self) -> bool:
        """Whether the state is the same on all ranks, as for map-style datasets; `State` then saves
        it once."""
        return self._source.same_on_every_rank

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's remaining batches of this epoch."""
        return iter(self._source)

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch. Raises TypeError for an iterable dataset."""
        return len(self._source)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for resuming after the last batch handed out."""
        return self._source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; an iteration begun before raises RuntimeError.

        Raises ValueError if the dataset has another length, or if an iterable dataset was split
        among another number of ranks or workers.
        """
        self._source.load_state_dict(state)
