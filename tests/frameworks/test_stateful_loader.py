"""A State with torchdata's StatefulDataLoader goes on in its data, or says why it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from torchmetrics import MeanMetric, MetricCollection

from trainrun.torch import State

pytestmark = pytest.mark.filterwarnings("ignore")

DATA = list(range(20))
KINDS = [
    pytest.param({}, id="in order"),
    pytest.param({"shuffle": True}, id="shuffled"),
    pytest.param({"shuffle": True, "num_workers": 2}, id="shuffled by workers"),
    pytest.param(
        {"shuffle": True, "num_workers": 2, "persistent_workers": True},
        id="shuffled by workers that stay",
    ),
]


class Stream(IterableDataset[int]):
    """Begins each iteration where it was told to, as those of Hugging Face do."""

    def __init__(self) -> None:
        self.start = self.place = 0

    def __iter__(self) -> Any:
        for place in range(self.start, 20):
            self.place = place + 1
            yield place

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["place"]


def epochs(batches: Any, loader: Any) -> list[list[float]]:
    """The samples of what is left and of two more epochs, and what a training draws beside them."""
    return [
        [*batch.tolist(), torch.rand(1).item()]
        for epoch in (batches, loader, loader)
        for batch in epoch
    ]


@pytest.mark.parametrize("options", KINDS)
def test_data_and_random_numbers_go_on_as_they_would_have(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    loader = StatefulDataLoader(DATA, batch_size=4, **options)
    state, batches = State(loader=loader, rng=True), iter(loader)
    next(batches)
    next(batches)
    state.write(tmp_path)
    expected = epochs(batches, loader)
    torch.manual_seed(1)
    again = StatefulDataLoader(DATA, batch_size=4, **options)
    State(loader=again, rng=True).read(tmp_path)
    assert epochs(again, again) == expected


@pytest.mark.case(
    "script", "A part of trainrun.torch.State cannot be put back", counted="maxFailures"
)
def test_an_iterator_that_began_before_the_load_is_an_error_that_says_so(tmp_path: Path) -> None:
    given, taken = (StatefulDataLoader(DATA, batch_size=4) for _ in range(2))
    batches = iter(given)
    next(batches)
    State(loader=given).write(tmp_path)
    begun = iter(taken)
    with pytest.raises(ValueError, match=r"began before load\(\) .*: call iter\(\) after load"):
        State(loader=taken).read(tmp_path)
    # Nobody goes on with these: they are no error.
    del begun
    assert next(iter(taken)).tolist() == [4, 5, 6, 7]
    next(iter(taken))
    State(loader=taken).read(tmp_path)
    assert next(iter(taken)).tolist() == [4, 5, 6, 7]


def test_the_order_of_an_epoch_is_set_after_the_load_as_ever(tmp_path: Path) -> None:
    def one() -> tuple[Any, Any]:
        sampler = DistributedSampler(DATA, 1, 0)
        return sampler, StatefulDataLoader(DATA, batch_size=4, sampler=sampler)

    sampler, loader = one()
    sampler.set_epoch(3)
    batches = iter(loader)
    next(batches)
    State(loader=loader, rng=True).write(tmp_path)
    expected = [batch.tolist() for batch in batches]
    sampler, loader = one()
    State(loader=loader, rng=True).read(tmp_path)
    sampler.set_epoch(3)
    assert [batch.tolist() for batch in loader] == expected


def test_a_stream_that_workers_keep_is_refused_as_later_epochs_would_be_shorter() -> None:
    loader = StatefulDataLoader(Stream(), batch_size=4, num_workers=1, persistent_workers=True)
    message = "later epoch at the point where it was resumed: leave out persistent_workers"
    with pytest.raises(ValueError, match=message):
        State(loader=loader)


def test_a_stream_without_workers_that_stay_has_whole_epochs_after_a_resume(tmp_path: Path) -> None:
    given, taken = (StatefulDataLoader(Stream(), batch_size=4, num_workers=1) for _ in range(2))
    batches = iter(given)
    next(batches)
    State(loader=given).write(tmp_path)
    State(loader=taken).read(tmp_path)
    assert [len(list(taken)) for _ in range(3)] == [4, 5, 5]


def test_a_generator_that_a_resume_leaves_behind_is_refused() -> None:
    loader = StatefulDataLoader(DATA, shuffle=True, generator=torch.Generator())
    with pytest.raises(ValueError, match="later epochs would have another order: leave out genera"):
        State(loader=loader)


@pytest.mark.parametrize("metric", [MeanMetric(), MetricCollection([MeanMetric()])])
def test_a_metric_that_saves_nothing_is_refused_and_told_how_it_saves(
    tmp_path: Path, metric: Any
) -> None:
    with pytest.raises(ValueError, match=r"is empty: call its persistent\(True\) first"):
        State(metric=metric)
    metric.persistent(True)
    metric.update(torch.tensor([1.0, 2.0]))
    expected = metric.compute()
    State(metric=metric).write(tmp_path)
    metric.reset()
    State(metric=metric).read(tmp_path)
    assert metric.compute() == expected
