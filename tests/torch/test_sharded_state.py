"""What a State saves of a sharded model and takes over, in one process that is the only rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from trainrun.torch import State

pytestmark = pytest.mark.usefixtures("group")


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Net(nn.Module):
    """Two layers, and one that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(batch))
        return result


class Training:
    """A sharded model and its optimizer, before the first step."""

    def __init__(
        self,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
        mesh: tuple[int, ...] = (1,),
    ) -> None:
        torch.manual_seed(0)
        self.net: Any = Net()
        names = ("replicas", "shards")[-len(mesh) :]
        fully_shard(self.net, mesh=init_device_mesh("cpu", mesh, mesh_dim_names=names))
        self.optimizer = optimizer(self.net.parameters(), lr=0.1)
        self.state = State(model=self.net, optimizer=self.optimizer)

    def backward(self, number: int) -> None:
        self.net(torch.full((2, 4), number + 1.0)).square().mean().backward()

    def train(self, *numbers: int) -> None:
        for number in numbers:
            self.backward(number)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def resumed(self, folder: Path) -> Training:
        self.state.read(folder)
        return self

    def weights(self) -> dict[str, torch.Tensor]:
        return {n: value.full_tensor().clone() for n, value in self.net.state_dict().items()}

    def steps(self) -> dict[str, float]:
        """How many steps the optimizer counts of each parameter that it has a state of."""
        state = self.optimizer.state
        return {n: float(state[p]["step"]) for n, p in self.net.named_parameters() if p in state}


def assert_same(one: Training, other: Training) -> None:
    weights, others = one.weights(), other.weights()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def frozen(training: Training) -> Training:
    training.net.body.requires_grad_(False)
    return training


def test_a_layer_that_never_had_a_gradient_does_not_make_the_resume_fail(tmp_path: Path) -> None:
    undisturbed = Training()
    undisturbed.train(0)
    undisturbed.state.write(tmp_path)
    undisturbed.train(1, 2)

    resumed = Training().resumed(tmp_path)
    assert resumed.steps().keys() == {"body.weight", "body.bias", "head.weight", "head.bias"}
    resumed.train(1, 2)
    assert_same(resumed, undisturbed)


def test_a_save_inside_the_first_accumulation_is_read(tmp_path: Path) -> None:
    undisturbed = Training()
    undisturbed.backward(0)
    undisturbed.state.write(tmp_path)
    undisturbed.train(1, 2)

    resumed = Training().resumed(tmp_path)
    assert resumed.steps() == {}
    resumed.train(1, 2)
    assert_same(resumed, undisturbed)


def test_a_save_before_the_first_step_leaves_the_optimizer_as_it_is(tmp_path: Path) -> None:
    undisturbed, saved = Training(), Training()
    saved.state.write(tmp_path)
    assert saved.steps() == {}
    resumed = Training().resumed(tmp_path)
    for training in (undisturbed, saved, resumed):
        training.train(0, 1)
    assert_same(saved, undisturbed)
    assert_same(resumed, undisturbed)


def test_layers_that_are_set_free_after_loading_keep_their_optimizers_state(tmp_path: Path) -> None:
    undisturbed = frozen(Training())
    undisturbed.train(0)
    undisturbed.net.body.requires_grad_(True)
    undisturbed.train(1, 2)
    undisturbed.state.write(tmp_path)
    undisturbed.train(3)

    resumed = frozen(Training()).resumed(tmp_path)
    assert not resumed.net.body.weight.requires_grad
    assert resumed.net.head.weight.requires_grad
    assert resumed.steps()["body.weight"] == 2
    resumed.net.body.requires_grad_(True)
    resumed.train(3)
    assert_same(resumed, undisturbed)


def test_a_save_right_after_a_validation_is_in_shards(tmp_path: Path) -> None:
    undisturbed, resumed = Training(), Training()
    undisturbed.train(0)
    for training in (undisturbed, resumed):
        with torch.no_grad():
            training.net(torch.ones(2, 4))
    undisturbed.state.write(tmp_path)
    resumed.resumed(tmp_path)
    undisturbed.train(1)
    resumed.train(1)
    assert_same(resumed, undisturbed)


@pytest.mark.parametrize(
    "optimizer",
    [torch.optim.SGD, lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9), torch.optim.Adagrad],
    ids=["no state", "momentum", "a state before the first step"],
)
@pytest.mark.parametrize("steps", [0, 1])
def test_other_optimizers_go_on_with_the_same_bits(
    tmp_path: Path, optimizer: Callable[..., torch.optim.Optimizer], steps: int
) -> None:
    undisturbed = Training(optimizer)
    undisturbed.train(*range(steps))
    undisturbed.state.write(tmp_path)
    undisturbed.train(2, 3)

    resumed = Training(optimizer).resumed(tmp_path)
    resumed.train(2, 3)
    assert_same(resumed, undisturbed)


def test_a_training_that_has_gone_on_goes_back_to_its_checkpoint(tmp_path: Path) -> None:
    training = frozen(Training())
    training.train(0)
    training.state.write(tmp_path)
    training.net.body.requires_grad_(True)
    training.train(1)
    first = training.weights()

    training.resumed(tmp_path)
    assert training.steps() == {"head.weight": 1, "head.bias": 1}
    training.train(1)
    assert all(torch.equal(first[name], value) for name, value in training.weights().items())


def test_a_frozen_training_takes_over_the_state_of_what_was_free_again(tmp_path: Path) -> None:
    free, training = Training(), frozen(Training())
    free.train(0)
    free.state.write(tmp_path)
    training.train(0)
    training.resumed(tmp_path).net.body.requires_grad_(True)
    free.train(1)
    training.train(1)
    assert_same(training, free)


def test_a_state_that_another_optimizer_has_no_place_for_is_refused(tmp_path: Path) -> None:
    saved, taken = Training(), frozen(Training(torch.optim.SGD))
    saved.train(0)
    saved.state.write(tmp_path)
    with pytest.raises(ValueError, match=r"cannot hold: exp_avg of body\.bias, ") as told:
        taken.state.read(tmp_path)
    assert str(told.value).endswith("Pass State the same optimizer for the same parameters")
    assert not taken.net.body.weight.requires_grad


def without_gradient_sync(net: Any, last: bool) -> None:
    net.set_requires_gradient_sync(last)


def without_all_reduce(net: Any, last: bool) -> None:
    net.set_requires_all_reduce(last)


@pytest.mark.parametrize(
    ("how", "mesh"),
    [(without_gradient_sync, (1,)), (without_all_reduce, (1, 1))],
    ids=["shards", "replicas"],
)
def test_gradients_that_are_accumulated_without_sync_are_not_lost_silently(
    tmp_path: Path, how: Callable[[Any, bool], None], mesh: tuple[int, ...]
) -> None:
    training = Training(torch.optim.SGD, mesh)
    how(training.net, False)
    training.backward(0)
    with pytest.raises(RuntimeError, match=r"unsynchronized.* save after optimizer.step\(\)"):
        training.state.write(tmp_path)
    assert not list(tmp_path.iterdir())
    how(training.net, True)
    training.backward(1)
    training.state.write(tmp_path)

    resumed = Training(torch.optim.SGD, mesh).resumed(tmp_path)
    for each in (training, resumed):
        each.train(2)
    assert_same(resumed, training)
