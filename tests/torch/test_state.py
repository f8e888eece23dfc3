"""What a State saves and takes over, in one process."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

from trainrun.torch import ResumableLoader, State, random_state, warm_up


class Counter:
    """Something of a user's own that has a state."""

    def __init__(self, count: object = 0) -> None:
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Wrapping(torch.optim.Optimizer):
    """Wraps an optimizer as Accelerate does: it calls no constructor of its base."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    def step(self, closure: Any = None) -> None:
        self.optimizer.step()

    def state_dict(self) -> Any:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.optimizer.load_state_dict(state)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Any:
    def be(rank: int, world_size: int) -> None:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world_size))

    return be


def parts(seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    net = nn.Linear(2, 2)
    data = TensorDataset(torch.arange(16.0).view(8, 2))
    return {
        "model": net,
        "optimizer": torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
        "loader": ResumableLoader(data, 3),
    }


def train_a_step(given: dict[str, Any]) -> None:
    (batch,) = next(iter(given["loader"]))
    given["model"](batch).sum().backward()
    given["optimizer"].step()


def gradients(module: nn.Module) -> list[torch.Tensor | None]:
    return [parameter.grad for parameter in module.parameters()]


def test_all_random_numbers_continue(tmp_path: Path) -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), float(numpy.random.rand()), torch.rand(1).item()

    State(rng=True).write(tmp_path)
    expected = draw()
    assert draw() != expected
    State(rng=True).read(tmp_path)
    assert draw() == expected


def test_a_seeded_block_repeats_its_random_numbers_and_no_others() -> None:
    def draw(*place: int) -> tuple[float, float, float]:
        with random_state.seeded(*place):
            return random.random(), float(numpy.random.rand()), torch.rand(1).item()

    assert draw(1, 2) == draw(1, 2)
    assert not set(draw(1, 2)) & set(draw(2, 1))


def test_all_parts_are_taken_over_by_their_names(tmp_path: Path) -> None:
    given, counter = parts(), Counter(7)
    train_a_step(given)
    State(**given, mine=counter).write(tmp_path)

    taken, other = parts(seed=1), Counter()
    State(**taken, mine=other).read(tmp_path)
    assert torch.equal(taken["model"].weight, given["model"].weight)
    momentum = given["optimizer"].state_dict()["state"][0]["momentum_buffer"]
    assert torch.equal(taken["optimizer"].state_dict()["state"][0]["momentum_buffer"], momentum)
    assert [batch.tolist() for (batch,) in taken["loader"]] == [
        batch.tolist() for (batch,) in given["loader"]
    ]
    assert other.count == 7


def test_without_a_checkpoint_the_training_begins_at_step_0() -> None:
    assert State(**parts()).load() == 0


def test_what_all_ranks_share_is_written_by_rank_0_alone(tmp_path: Path, ranks: Any) -> None:
    for rank in (0, 1):
        (tmp_path / str(rank)).mkdir()
        ranks(rank, 2)
        State(**parts(), rng=True).write(tmp_path / str(rank))
    assert {path.name for path in (tmp_path / "0").iterdir()} == {"state.pt", "state-rank0.pt"}
    assert {path.name for path in (tmp_path / "1").iterdir()} == {"state-rank1.pt"}


def test_a_part_of_ones_own_is_saved_by_each_rank_unless_it_says_that_all_are_the_same(
    tmp_path: Path, ranks: Any
) -> None:
    own, same = Counter(), Counter()
    same.same_on_every_rank = True  # type: ignore[attr-defined]
    for rank in (0, 1):
        ranks(rank, 2)
        own.count = same.count = rank
        State(own=own, same=same).write(tmp_path)
    State(own=own, same=same).read(tmp_path)
    assert (own.count, same.count) == (1, 0)


def test_gradients_inside_accumulation_are_saved(tmp_path: Path) -> None:
    given, taken = parts(), parts(seed=1)
    state = State(**given)
    train_a_step(given)
    given["optimizer"].zero_grad()
    given["model"](torch.ones(1, 2)).sum().backward()
    state.write(tmp_path)
    State(**taken).read(tmp_path)
    for loaded, saved in zip(gradients(taken["model"]), gradients(given["model"]), strict=True):
        assert loaded is not None
        assert saved is not None
        assert torch.equal(loaded, saved)


@pytest.mark.parametrize("set_to_none", [False, True])
def test_gradients_that_come_after_a_step_are_saved(tmp_path: Path, set_to_none: bool) -> None:
    given, taken = parts(), parts(seed=1)
    state = State(**given)
    train_a_step(given)
    given["optimizer"].zero_grad(set_to_none=set_to_none)
    given["model"](torch.full((1, 2), 3.0)).sum().backward()
    state.write(tmp_path)
    State(**taken).read(tmp_path)
    assert taken["model"].weight.grad.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_gradients_that_an_optimizer_has_used_are_not_saved(tmp_path: Path) -> None:
    given, taken = parts(), parts(seed=1)
    state = State(**given)
    train_a_step(given)
    state.write(tmp_path)
    State(**taken).read(tmp_path)
    assert gradients(taken["model"]) == [None, None]


def test_an_optimizer_that_accelerate_has_wrapped_is_taken_as_any_other(tmp_path: Path) -> None:
    given, taken = parts(), parts(seed=1)
    given["optimizer"] = Wrapping(given["optimizer"])
    state = State(**given)
    train_a_step(given)
    state.write(tmp_path)
    State(**taken).read(tmp_path)
    assert gradients(taken["model"]) == [None, None]
    assert taken["optimizer"].state_dict()["state"].keys() == {0, 1}


def test_a_wrapped_model_is_saved_bare(tmp_path: Path) -> None:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        wrapped, net = DistributedDataParallel(nn.Linear(2, 2)), nn.Linear(2, 2)
        State(model=torch.compile(wrapped)).write(tmp_path)
        State(model=net).read(tmp_path)
        assert torch.equal(net.weight, wrapped.module.weight)
        State(model=torch.compile(nn.Linear(2, 2))).read(tmp_path)
    finally:
        torch.distributed.destroy_process_group()


def test_other_names_are_told_with_what_to_do(tmp_path: Path) -> None:
    given = parts()
    State(**given, ema=nn.Linear(2, 2), rng=True).write(tmp_path)
    with pytest.raises(ValueError, match="partial=True") as told:
        State(**given, scaler=torch.amp.GradScaler("cpu")).read(tmp_path)
    assert str(told.value) == (
        f"{tmp_path} has no scaler and ema, rng that this State lacks: it was saved by "
        "State(model=..., optimizer=..., loader=..., ema=..., rng=True), and this is "
        "State(model=..., optimizer=..., loader=..., scaler=...). Use the same names, or load "
        "what both have with partial=True"
    )


def test_what_both_have_can_be_taken_over(tmp_path: Path) -> None:
    given, taken = parts(), parts(seed=1)
    State(model=given["model"], ema=nn.Linear(2, 2)).write(tmp_path)
    with pytest.warns(
        UserWarning, match=r"lacks part of this training: optimizer, loader, rng was"
    ):
        State(**taken, rng=True).read(tmp_path, partial=True)
    assert torch.equal(taken["model"].weight, given["model"].weight)


def test_another_number_of_ranks_is_told_with_what_to_do(tmp_path: Path, ranks: Any) -> None:
    for rank in (0, 1):
        ranks(rank, 2)
        State(**parts(), own=Counter(), rng=True).write(tmp_path)
    ranks(0, 1)
    with pytest.raises(ValueError, match="partial=True") as told:
        State(**parts(), own=Counter(), rng=True).read(tmp_path)
    assert str(told.value) == (
        f"{tmp_path} was saved by 2 ranks, but this run has 1: each rank had its own own, "
        "rng. Run with 2 ranks, or load what all ranks share with partial=True"
    )
    taken = parts(seed=1)
    with pytest.warns(
        UserWarning, match=r"own, rng was reset, so the training continues, but not b"
    ):
        State(**taken, own=Counter(), rng=True).read(tmp_path, partial=True)
    assert torch.equal(taken["model"].weight, parts()["model"].weight)


def test_half_accumulated_gradients_are_not_lost_silently_with_another_number_of_ranks(
    tmp_path: Path, ranks: Any
) -> None:
    given = parts()
    given["model"](torch.ones(1, 2)).sum().backward()
    ranks(0, 2)
    State(**given).write(tmp_path)
    ranks(0, 1)
    with pytest.raises(ValueError, match="each rank had its own gradients"):
        State(**given).read(tmp_path)


def test_half_accumulated_gradients_of_another_rank_than_the_first_are_not_lost_silently(
    tmp_path: Path, ranks: Any
) -> None:
    for rank in (0, 1):
        given = parts()
        if rank == 1:
            given["model"](torch.ones(1, 2)).sum().backward()
        ranks(rank, 2)
        State(**given).write(tmp_path)
    ranks(0, 1)
    with pytest.raises(ValueError, match="each rank had its own gradients"):
        State(**parts()).read(tmp_path)


@pytest.mark.filterwarnings("ignore:Validating sparse tensor")
def test_half_accumulated_gradients_without_an_optimizer_are_not_lost_silently(
    tmp_path: Path, ranks: Any
) -> None:
    net = nn.Embedding(4, 2, sparse=True)
    net(torch.tensor([1])).sum().backward()
    ranks(0, 2)
    State(model=net).write(tmp_path)
    ranks(0, 1)
    with pytest.raises(ValueError, match="each rank had its own gradients"):
        State(model=net).read(tmp_path)


@pytest.mark.parametrize("what", ["zeros", "a layer that no optimizer has"])
def test_gradients_that_no_step_would_use_do_not_bind_a_checkpoint_to_its_number_of_ranks(
    tmp_path: Path, ranks: Any, what: str
) -> None:
    def stack() -> dict[str, Any]:
        net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        changed = net if what == "zeros" else net[1]
        return {"model": net, "optimizer": torch.optim.SGD(changed.parameters(), lr=0.1)}

    given, taken, again = stack(), stack(), stack()
    ranks(0, 2)
    state = State(**given)
    for _ in range(2):
        given["model"](torch.ones(1, 2)).sum().backward()
        given["optimizer"].step()
        given["optimizer"].zero_grad(set_to_none=what != "zeros")
    state.write(tmp_path)
    # With as many ranks as before they are taken over, for the same bits.
    State(**again).read(tmp_path)
    assert torch.equal(again["model"][0].weight.grad, given["model"][0].weight.grad)
    ranks(0, 4)
    State(**taken).read(tmp_path)
    assert torch.equal(taken["model"][1].weight, given["model"][1].weight)


def test_without_anything_of_a_ranks_own_any_number_of_ranks_goes_on(
    tmp_path: Path, ranks: Any
) -> None:
    ranks(0, 4)
    given, taken = parts(), parts(seed=1)
    State(**given).write(tmp_path)
    ranks(2, 3)
    State(**taken).read(tmp_path)
    assert torch.equal(taken["model"].weight, given["model"].weight)


def test_files_that_are_not_there_are_told(tmp_path: Path, ranks: Any) -> None:
    with pytest.raises(ValueError, match=r"has no state.pt: State.save\(\) was not called on all"):
        State(**parts()).read(tmp_path)
    ranks(0, 2)
    State(**parts()).write(tmp_path)
    ranks(1, 2)
    with pytest.raises(ValueError, match=r"has no state-rank1.pt"):
        State(**parts()).read(tmp_path)


def test_a_part_without_a_state_is_refused() -> None:
    with pytest.raises(TypeError, match=r"State\(lr=...\): a float lacks state_dict"):
        State(lr=0.1)  # type: ignore[arg-type]


def test_a_state_that_could_not_be_read_again_is_told_when_it_is_saved(tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match=r"contains pathlib.*, which torch.load\(weights_only=True\)"
    ):
        State(mine=Counter(Path())).write(tmp_path)


def test_a_warm_up_leaves_no_trace() -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout())
    before = {name: value.clone() for name, value in net.state_dict().items()}
    numbers = torch.get_rng_state()
    warm_up(net, lambda: net(torch.rand(5, 2)).sum())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.equal(torch.get_rng_state(), numbers)
