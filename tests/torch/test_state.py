"""The helpers in one process."""

from __future__ import annotations

import random
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainrun.torch import ResumableSampler, TrainingState, random_state, warm_up


def samplers(length: int = 10, world: int = 3) -> list[ResumableSampler]:
    return [ResumableSampler(length, rank=rank, world_size=world) for rank in range(world)]


def test_ranks_share_an_epoch_without_overlap() -> None:
    shares = [list(sampler) for sampler in samplers()]
    assert [len(share) for share in shares] == [3, 3, 3]
    assert len({index for share in shares for index in share}) == 9


def test_each_epoch_has_an_order_of_its_own_and_a_seed_repeats_it() -> None:
    first, again = samplers(50)[0], samplers(50)[0]
    order = list(first)
    first.next_epoch()
    assert list(first) != order
    assert list(again) == order


def test_it_goes_on_at_a_position_counted_over_all_ranks() -> None:
    rank_1 = samplers(30)[1]
    order = list(rank_1)
    rank_1.advance(4)
    assert rank_1.position == 12
    assert (list(rank_1), len(rank_1)) == (order[4:], 6)


def test_it_goes_on_with_another_world_size_without_losing_or_repeating_samples() -> None:
    before = samplers(24, world=4)
    used = [index for sampler in before for index in list(sampler)[:2]]
    before[0].advance(2)
    after = samplers(24, world=2)
    for sampler in after:
        sampler.load_state_dict(before[0].state_dict())
    left = [index for sampler in after for index in sampler]
    assert sorted(used + left) == list(range(24))


def test_without_shuffling_the_order_is_that_of_the_data() -> None:
    assert list(ResumableSampler(6, shuffle=False, rank=1, world_size=2)) == [1, 3, 5]


def test_fewer_samples_than_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="2 samples cannot be shared by 3 ranks"):
        samplers(2)


def small(
    rank: int = 0, world: int = 1
) -> tuple[TrainingState, DataLoader[tuple[torch.Tensor, ...]]]:
    net = nn.Linear(2, 2)
    sampler = ResumableSampler(8, rank=rank, world_size=world)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = TensorDataset(torch.arange(16.0).view(8, 2))
    return TrainingState(net, optimizer, sampler), DataLoader(data, batch_size=3, sampler=sampler)


def test_all_random_numbers_continue(tmp_path: Path) -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.rand()), torch.rand(1).item()

    state = random_state.capture()
    torch.save(state, tmp_path / "state")
    expected = draw()
    assert draw() != expected
    random_state.restore(torch.load(tmp_path / "state", weights_only=True))
    assert draw() == expected


def test_making_an_iterator_draws_no_random_numbers_of_the_training() -> None:
    state, loader = small()
    expected = torch.get_rng_state()
    next(state.batches(loader))
    assert torch.equal(torch.get_rng_state(), expected)


def test_epochs_follow_each_other() -> None:
    state, loader = small()
    assert [len(batch[0]) for batch in state.batches(loader)] == [3, 3, 2]
    assert [len(batch[0]) for batch in state.batches(loader)] == [3, 3, 2]


def test_batches_refuses_a_loader_with_another_sampler() -> None:
    (state, _), (_, other) = small(), small()
    with pytest.raises(ValueError, match="with sampler= the sampler of this TrainingState"):
        next(state.batches(other))


def test_another_world_size_is_told(tmp_path: Path) -> None:
    small(rank=0, world=2)[0].save(tmp_path)
    with pytest.warns(UserWarning, match="another number of ranks than 1: the training goes on"):
        small()[0].load(tmp_path)


def test_a_warm_up_leaves_no_trace() -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout())
    before = {name: value.clone() for name, value in net.state_dict().items()}
    numbers = torch.get_rng_state()
    warm_up(net, lambda: net(torch.rand(5, 2)).sum())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.equal(torch.get_rng_state(), numbers)
