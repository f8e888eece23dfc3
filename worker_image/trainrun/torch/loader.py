"""A loader of batches that goes on in the middle of an epoch."""

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
"""Options of DataLoader that decide about the order, as this loader does."""


class ResumableLoader:
    """A DataLoader that has a state: each rank's share of a dataset, in batches.

    An iteration gives what is left of the epoch that stands in `epoch`, and then begins the next
    one, so `for epoch in range(loader.epoch, epochs): for batch in loader: ...` resumes by itself.
    Who counts batches and stops after the last one begins the next epoch by the next iteration.
    A batch counts as consumed when it is handed out: save after training on it. What workers have
    loaded ahead does not count.

    Map-style datasets: the order depends on seed and epoch alone; rank r has every world_size-th
    sample from the r-th on. What does not divide by the world size is left out, another few
    samples in each epoch. Nothing that is past is loaded again, and the state fits any number of
    ranks and workers.

    Iterable datasets: each worker of each rank reads the dataset and keeps every n-th sample. What
    is past is read again and thrown away, unless the dataset has `state_dict()` and
    `load_state_dict()`. Its `set_epoch()` is called where there is one. A resume needs the same
    number of ranks and of workers.

    Random numbers that the dataset and `collate_fn` draw from the global generators of PyTorch,
    Python and NumPy come from seed, epoch and the place of the batch, whatever loads it, and leave
    those of the training as they are.
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
        """Share a dataset out to the ranks.

        Args:
            dataset: Map-style or iterable.
            batch_size: Samples of this rank in a batch.
            shuffle: Another order in each epoch; for map-style datasets.
            seed: Of the order and of the dataset's random numbers; the same on every rank.
            drop_last: Leave out a last batch that is smaller.
            split: False for an iterable dataset that shares itself out to ranks and workers.
            num_workers: Processes that load; with 0 this one does.
            collate_fn: Makes a batch of a list of samples.
            rank: `get_context()`'s by default.
            world_size: `get_context()`'s by default.
            options: Further ones of DataLoader: `pin_memory`, `prefetch_factor`, `worker_init_fn`,
                `multiprocessing_context`, `timeout`; `persistent_workers` for map-style datasets.

        Raises ValueError where a rank would have no batch, TypeError for options about the order.
        """
        if wrong := [name for name in DECIDED if name in options]:
            raise TypeError(f"ResumableLoader decides about {', '.join(wrong)} itself")
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
            raise ValueError("an iterable dataset takes neither shuffle nor persistent_workers")
        else:
            self._source = IterableSource(dataset, share, seed=seed, split=split)

    @classmethod
    def of(cls, loader: DataLoader[Any], *, seed: int = 0) -> ResumableLoader:
        """Load as a DataLoader would: its dataset, batches, workers and options, shared out anew.

        Args:
            loader: With batches and an order of its own making: `shuffle=True` or False.
            seed: As above; its orders are others than the DataLoader's.

        Raises ValueError for one with a sampler, batch sampler or generator of a user's.
        """
        sampler = loader.sampler
        shuffle = type(sampler) is RandomSampler and not sampler.replacement
        plain = shuffle or type(sampler) is SequentialSampler
        iterable = isinstance(loader.dataset, IterableDataset)
        if loader.batch_size is None or loader.generator is not None or not (plain or iterable):
            raise ValueError(
                "this DataLoader has a sampler, a batch_sampler or a generator of its own, which "
                "ResumableLoader would not follow: give it a DataLoader with batch_size and "
                "shuffle alone"
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
        """The epoch that is being consumed, from 0."""
        return self._source.epoch

    @property
    def same_on_every_rank(self) -> bool:
        """Whether the state is: with map-style datasets. `State` then saves it once."""
        return self._source.same_on_every_rank

    def __iter__(self) -> Iterator[Any]:
        """The batches that this rank has left in this epoch."""
        return iter(self._source)

    def __len__(self) -> int:
        """Batches of this rank in a whole epoch. Raises TypeError for an iterable dataset."""
        return len(self._source)

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs to go on behind the last batch that was handed out."""
        return self._source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; an iteration that has begun raises RuntimeError.

        Raises ValueError for a dataset of another length, and where an iterable dataset was shared
        out to other numbers of ranks or workers.
        """
        self._source.load_state_dict(state)
