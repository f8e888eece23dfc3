"""A ResumableLoader that is made of a DataLoader loads what that would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from trainrun.torch import ResumableLoader


class UpToFive(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(5)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_made_of_a_dataloader_loads_like_one_that_was_told(
    shuffle: bool, workers: int
) -> None:
    data = TensorDataset(torch.arange(21.0))
    options: dict[str, Any] = {"shuffle": shuffle, "drop_last": True, "num_workers": workers}
    made = ResumableLoader.of(DataLoader(data, batch_size=4, collate_fn=list, **options), seed=3)
    told = ResumableLoader(data, 4, collate_fn=list, seed=3, **options)
    assert len(made) == 5
    assert list(made) == list(told)


def test_a_loader_made_of_a_dataloader_of_an_iterable_dataset_reads_it() -> None:
    made = ResumableLoader.of(DataLoader(UpToFive(), batch_size=2))
    assert [batch.tolist() for batch in made] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": WeightedRandomSampler([1.0] * 8, 8), "batch_size": 2},
        {"sampler": RandomSampler(range(8), replacement=True), "batch_size": 2},
        {"batch_sampler": [[0, 1], [2, 3]]},
        {"batch_size": None},
        {"batch_size": 2, "shuffle": True, "generator": torch.Generator()},
    ],
    ids=["sampler", "with replacement", "batch_sampler", "no batches", "generator"],
)
def test_a_dataloader_that_orders_its_data_otherwise_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="pass a DataLoader with only batch_size and shuffle"):
        ResumableLoader.of(DataLoader(TensorDataset(torch.arange(8.0)), **options))
