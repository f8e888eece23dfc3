"""A ResumableLoader gives the same batches, wherever its epoch was begun and whatever loads it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from tests.support.levels import later_rare
from trainrun.torch import ResumableLoader


class Noisy(Dataset[list[float]]):
    """Samples that know their index, and draw random numbers when they are loaded."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> list[float]:
        self.loaded.append(index)
        return [index, random.random(), float(numpy.random.rand()), torch.rand(1).item()]


class Shuffling(IterableDataset[list[float]]):
    """The order is drawn from PyTorch's random numbers when an epoch begins."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[list[float]]:
        for index in torch.randperm(self.length).tolist():
            yield [index, random.random()]


class Counting(IterableDataset[int]):
    """Has a state, and says how much it has read."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.position = 0
        self.read = 0
        self.epochs: list[int] = []

    def __iter__(self) -> Iterator[int]:
        while self.position < self.length:
            self.position, self.read = self.position + 1, self.read + 1
            yield self.position - 1
        self.position = 0

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class SharesItself(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(5)


class ByWorker(IterableDataset[tuple[int, int]]):
    """Each worker has samples of its own, and not as many as the others."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for sample in self.mine():
            yield sample, random.randrange(1000)

    def mine(self) -> range:
        worker = get_worker_info()
        assert worker is not None
        return range(100 * worker.id, 100 * worker.id + (7, 2, 5)[worker.id])


class ByWorkerWithState(ByWorker):
    def __init__(self) -> None:
        self.seen = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for sample in self.mine()[self.seen :]:
            self.seen += 1
            yield sample, random.randrange(1000)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def as_list(samples: list[Any]) -> list[Any]:
    return samples


def indices(batches: Any) -> list[int]:
    return [int(sample[0]) for batch in batches for sample in batch]


def loaders(dataset: Any, batch_size: int, world: int, **options: Any) -> list[ResumableLoader]:
    options = {"collate_fn": as_list, **options}
    return [
        ResumableLoader(dataset, batch_size, rank=rank, world_size=world, **options)
        for rank in range(world)
    ]


def one(dataset: Any, batch_size: int = 3, **options: Any) -> ResumableLoader:
    return loaders(dataset, batch_size, 1, **options)[0]


def some_of(loader: ResumableLoader, count: int) -> list[Any]:
    """The first batches; the iteration is given up behind the last of them."""
    iterator = iter(loader)
    return [next(iterator) for _ in range(count)]


KINDS = {
    "map-style": lambda: Noisy(31),
    "iterable": lambda: Shuffling(31),
    "iterable with a state": lambda: Counting(31),
}
FORKED = {"num_workers": 2, "multiprocessing_context": "fork"}
SPAWNED = {"num_workers": 2, "multiprocessing_context": "spawn"}


@pytest.mark.parametrize("by", [{}, FORKED], ids=["this process", "forked processes"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_behind_the_last_batch_that_was_handed_out(
    kind: str, by: dict[str, Any]
) -> None:
    options = {**by, "shuffle": kind == "map-style"}
    loader = one(KINDS[kind](), **options)
    undisturbed = [list(loader), list(loader)]
    early = one(KINDS[kind](), **options)
    begun = some_of(early, 3)

    resumed = one(KINDS[kind](), **options)
    resumed.load_state_dict(early.state_dict())
    assert begun + list(resumed) == undisturbed[0]
    assert resumed.epoch == 1
    assert list(resumed) == undisturbed[1]


@pytest.mark.parametrize("kind", later_rare(list(KINDS), by="tests/torch/test_loader.py"))
def test_processes_that_were_spawned_load_what_forked_ones_do(kind: str) -> None:
    forked, spawned = one(KINDS[kind](), **FORKED), one(KINDS[kind](), **SPAWNED)
    some_of(forked, 3)
    spawned.load_state_dict(forked.state_dict())
    assert list(spawned) == list(forked)


def test_the_number_of_loading_processes_changes_no_batch_of_a_map_style_dataset() -> None:
    alone, two = one(Noisy(11), shuffle=True), one(Noisy(11), shuffle=True, num_workers=2)
    assert list(two) == list(alone)
    assert some_of(two, 2) == some_of(alone, 2)


def test_whoever_stops_after_the_last_batch_has_the_next_epoch_behind_it() -> None:
    loader, counted = one(Noisy(7), shuffle=True), one(Noisy(7), shuffle=True)
    first, second = list(loader), list(loader)
    assert some_of(counted, 3) == first
    assert counted.epoch == 0  # so a checkpoint that is saved here resumes with what follows it
    resumed = one(Noisy(7), shuffle=True)
    resumed.load_state_dict(counted.state_dict())
    assert list(resumed) == []
    assert list(resumed) == some_of(counted, 3) == second


def test_processes_that_stay_are_told_of_the_next_epoch() -> None:
    kept = one(Noisy(11), shuffle=True, num_workers=1, persistent_workers=True)
    alone = one(Noisy(11), shuffle=True)
    assert [list(kept), list(kept)] == [list(alone), list(alone)]


def test_what_is_past_is_not_loaded_again() -> None:
    early, data = one(Noisy(10)), Noisy(10)
    some_of(early, 2)
    resumed = one(data)
    resumed.load_state_dict(early.state_dict())
    assert indices(resumed) == data.loaded == [6, 7, 8, 9]


def test_a_dataset_with_a_state_reads_nothing_again() -> None:
    early, data = one(Counting(10)), Counting(10)
    some_of(early, 2)
    resumed = one(data)
    resumed.load_state_dict(early.state_dict())
    assert list(resumed) == [[6, 7, 8], [9]]
    assert data.read == 4


@pytest.mark.parametrize("by", [{}, FORKED], ids=["this process", "forked processes"])
@pytest.mark.parametrize("split", [True, False])
def test_an_epoch_saved_behind_a_last_batch_that_is_smaller_is_not_given_again(
    split: bool, by: dict[str, Any]
) -> None:
    """Counting has begun anew by then, and its state said so."""
    options = {**by, "split": split}
    loader, early, resumed = (one(Counting(10), **options) for _ in range(3))
    epoch = list(loader)
    assert len(epoch[-1]) < 3
    assert some_of(early, len(epoch)) == epoch

    resumed.load_state_dict(early.state_dict())
    assert list(resumed) == []
    assert resumed.epoch == 1
    assert list(resumed) == epoch


def test_a_state_that_was_saved_before_ends_were_remembered_goes_on() -> None:
    early, resumed = one(Counting(10)), one(Counting(10))
    some_of(early, 2)
    state = early.state_dict()
    for shard in state["shards"]:
        del shard["ended"]
    resumed.load_state_dict(state)
    assert list(resumed) == [[6, 7, 8], [9]]


def test_an_iterable_dataset_is_told_the_epoch() -> None:
    data = Counting(4)
    loader = one(data)
    assert list(loader) == list(loader)
    assert data.epochs == [0, 1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["map-style", "iterable"])
def test_ranks_share_an_epoch_without_overlap(kind: str, workers: int) -> None:
    ranks = loaders(KINDS[kind](), 2, 3, shuffle=kind == "map-style", num_workers=workers)
    shares = [indices(loader) for loader in ranks]
    each = 31 // (3 * max(1, workers)) * max(1, workers) if kind == "iterable" else 10
    assert [len(share) for share in shares] == [each] * 3
    assert len({index for share in shares for index in share}) == 3 * each


def test_each_epoch_has_an_order_of_its_own_and_a_seed_repeats_it() -> None:
    loader, again, other = (one(Noisy(50), shuffle=True, seed=seed) for seed in (0, 0, 1))
    order = indices(loader)
    assert sorted(order) == list(range(50))
    assert indices(loader) != order
    assert indices(again) == order
    assert indices(other) != order


def test_a_map_style_dataset_goes_on_with_another_number_of_ranks() -> None:
    before = loaders(Noisy(24), 2, 4, shuffle=True)
    used = [index for loader in before for index in indices(some_of(loader, 1))]
    after = loaders(Noisy(24), 2, 2, shuffle=True)
    for loader in after:
        loader.load_state_dict(before[0].state_dict())
    left = [index for loader in after for index in indices(loader)]
    assert sorted(used + left) == list(range(24))


@pytest.mark.parametrize(
    ("samples", "size", "drop_last", "used", "ranks"),
    [(12, 1, False, 1, (2, 3)), (1000, 8, False, 5, (8, 6)), (24, 2, True, 1, (4, 3))],
)
def test_all_ranks_have_as_many_batches_left_where_there_were_other_ranks_before(
    samples: int, size: int, drop_last: bool, used: int, ranks: tuple[int, int]
) -> None:
    """One rank waited for ever in a collective that the others were past."""
    before, after = ranks
    then = loaders(Noisy(samples), size, before, drop_last=drop_last)
    seen = [index for loader in then for index in indices(some_of(loader, used))]
    now = loaders(Noisy(samples), size, after, drop_last=drop_last)
    for loader in now:
        loader.load_state_dict(then[0].state_dict())
    left = [indices(loader) for loader in now]
    assert len({len(share) for share in left}) == 1
    rest = [index for share in left for index in share]
    assert len(set(seen + rest)) == len(seen + rest)
    assert [len(list(loader)) for loader in now] == [len(now[0])] * after


@pytest.mark.parametrize("kind", KINDS)
def test_a_last_batch_that_is_smaller_can_be_left_out(kind: str) -> None:
    kept, dropped = one(KINDS[kind](), 4), one(KINDS[kind](), 4, drop_last=True)
    assert [len(batch) for batch in kept] == [4] * 7 + [3]
    assert [len(batch) for batch in dropped] == [4] * 7


def test_its_length_is_that_of_a_whole_epoch() -> None:
    kept, dropped = one(Noisy(11), 4), one(Noisy(11), 4, drop_last=True)
    some_of(kept, 2)
    assert (len(kept), len(dropped)) == (3, 2)
    with pytest.raises(TypeError, match="of an iterable dataset has no len"):
        len(one(Shuffling(3)))


@pytest.mark.parametrize("kind", KINDS)
def test_loading_leaves_the_random_numbers_of_the_training_alone(kind: str) -> None:
    def state() -> tuple[Any, ...]:
        return torch.get_rng_state().tolist(), random.getstate(), numpy.random.get_state()[1].sum()

    before = state()
    assert list(one(KINDS[kind]()))
    assert state() == before


def test_a_dataset_that_shares_itself_out_is_read_by_every_rank_as_it_is() -> None:
    ranks = loaders(SharesItself(), 2, 2, split=False)
    assert [list(loader) for loader in ranks] == [[[0, 1], [2, 3], [4]]] * 2


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("data", [ByWorker, ByWorkerWithState])
def test_a_dataset_that_goes_by_its_workers_number_repeats_and_loses_nothing_after_a_resume(
    data: type[ByWorker],
) -> None:
    """Worker 0 went on with another's shard unless each had handed out as many batches."""
    options = {**FORKED, "num_workers": 3, "split": False}
    undisturbed = list(one(data(), 2, **options))
    assert len(undisturbed) == 8
    begun, state = [], one(data(), 2, **options).state_dict()
    for count in range(1, 9):
        once, again = one(data(), 2, **options), one(data(), 2, **options)
        once.load_state_dict(state)
        begun += some_of(once, 1)
        state = once.state_dict()
        again.load_state_dict(state)
        assert begun + list(again) == undisturbed, f"resumed after each of {count} batches"


def test_a_rank_without_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="2 samples are too few for 3 ranks with batches of 1"):
        loaders(Noisy(2), 1, 3)
    with pytest.raises(ValueError, match="with batches of 4 and drop_last=True"):
        one(Noisy(3), 4, drop_last=True)
    with pytest.raises(ValueError, match="too few samples for a batch on each of 3 ranks with 1 w"):
        list(loaders(Shuffling(2), 1, 3)[0])


def test_options_that_decide_about_the_order_are_refused() -> None:
    with pytest.raises(TypeError, match="ResumableLoader sets sampler itself"):
        one(Noisy(3), sampler=[1])
    with pytest.raises(ValueError, match="supports neither shuffle nor persistent_workers"):
        one(Shuffling(3), shuffle=True)


def test_a_state_of_another_dataset_is_refused() -> None:
    with pytest.raises(ValueError, match="belongs to a dataset of 9 samples, but this one has 10"):
        one(Noisy(10)).load_state_dict(one(Noisy(9)).state_dict())


def test_an_iterable_dataset_is_resumed_with_the_same_numbers_only() -> None:
    state = loaders(Shuffling(9), 1, 2)[0].state_dict()
    with pytest.raises(ValueError, match="to 2 ranks with 1 workers each, but there are 1 with 2"):
        one(Shuffling(9), num_workers=2).load_state_dict(state)
