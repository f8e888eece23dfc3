"""A sharded model: a directory for each rank when saved, one when read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.checkpoints import materialize
from tests.torch.ranks import start_ranks
from tests.torch.sharded import STEPS, WORLD, Sharding, model, train_sharded
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.writer import commit_if_complete, scan, write_part
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.torch import State

SAVED_AFTER = {"a step": 4, "half an accumulation": 5, "the last step": STEPS}


def commit(run: RunStore, step: int, directories: list[Path]) -> None:
    """As two agents do: each stores the part of its rank, then one of them commits."""
    for rank, directory in enumerate(directories):
        write_part(
            run,
            attempt=1,
            step=step,
            worker=rank,
            workers=len(directories),
            files=scan(directory, rank=rank),
            metrics={},
        )
    assert commit_if_complete(run, attempt=1, step=step) is not None


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunStore]:
    """The weights at the end, and the run with the checkpoints of the way."""
    folder = tmp_path_factory.mktemp("sharded")
    saves = {
        count: [folder / f"step-{count}-rank-{rank}" for rank in range(WORLD)]
        for count in SAVED_AFTER.values()
    }
    for directory in (path for paths in saves.values() for path in paths):
        directory.mkdir()
    results = start_ranks(WORLD, train_sharded, folder / "run", Sharding(saves=saves))
    (folder / "storage").mkdir()
    run = RunStore(open_store((folder / "storage").as_uri()), "sharded")
    for count, directories in saves.items():
        commit(run, count, directories)
    return results[0], run


def fetched(run: RunStore, step: int, folder: Path) -> Path:
    """The files of all ranks, in one directory."""
    return materialize(run, CheckpointId(attempt=1, step=step), cache_dir=folder / "cache")


def read(path: Path) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = torch.load(path, weights_only=True)
    return weights


@pytest.mark.parametrize("where", ["a step", "half an accumulation"])
def test_a_resume_with_shards_ends_with_the_same_bits(
    where: str, undisturbed: tuple[Path, RunStore], tmp_path: Path
) -> None:
    result, run = undisturbed
    plan = Sharding(load=fetched(run, SAVED_AFTER[where], tmp_path))
    resumed = read(start_ranks(WORLD, train_sharded, tmp_path / "run", plan)[0])
    weights = read(result)
    assert resumed.keys() == weights.keys()
    assert all(torch.equal(resumed[name], weights[name]) for name in weights)


@pytest.mark.filterwarnings("ignore:.*single process")
def test_shards_that_were_saved_beside_the_training_are_those_of_the_call(
    undisturbed: tuple[Path, RunStore], tmp_path: Path
) -> None:
    """Also the last ones, of which a part was written after `destroy_process_group()`."""
    saves = {step: [tmp_path / f"{step}-{rank}" for rank in range(WORLD)] for step in (5, STEPS)}
    start_ranks(WORLD, train_sharded, tmp_path / "run", Sharding(saves=saves, wait=False))
    (tmp_path / "storage").mkdir()
    run = RunStore(open_store((tmp_path / "storage").as_uri()), "beside")
    for step, directories in saves.items():
        commit(run, step, directories)
    result, original = undisturbed
    for step in saves:
        shards, same = (model(), model())
        for net, store, place in ((shards, run, "beside"), (same, original, "undisturbed")):
            optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
            (tmp_path / f"{place}-{step}").mkdir()
            with pytest.warns(UserWarning, match="was reset"):
                State(model=net, optimizer=optimizer, rng=True).read(
                    fetched(store, step, tmp_path / f"{place}-{step}"), partial=True
                )
        for name, value in same.state_dict().items():
            assert torch.equal(shards.state_dict()[name], value)
    weights = read(result)
    assert all(torch.equal(shards.state_dict()[name], value) for name, value in weights.items())


@pytest.mark.filterwarnings("ignore:.*single process")
def test_shards_of_two_ranks_are_read_on_one_that_has_none(
    undisturbed: tuple[Path, RunStore], tmp_path: Path
) -> None:
    result, run = undisturbed
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with pytest.warns(UserWarning, match="rng was reset"):
        State(model=net, optimizer=optimizer, rng=True).read(
            fetched(run, STEPS, tmp_path), partial=True
        )
    saved = read(result)
    assert all(torch.equal(saved[name], value) for name, value in net.state_dict().items())
    assert not torch.equal(saved["0.weight"], model().state_dict()["0.weight"])
    assert [float(state["step"]) for state in optimizer.state.values()] == [STEPS / 2] * 4
