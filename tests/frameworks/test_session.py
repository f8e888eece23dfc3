"""What a session of Accelerate hands out, in one process and without a run."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trainrun.accelerate import AccelerateSession, epochs, session
from trainrun.torch import ResumableLoader

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*")

SAMPLES = TensorDataset(torch.arange(8.0))


class Unsized(IterableDataset[float]):
    def __iter__(self) -> Any:
        return iter([1.0, 2.0])


def an_accelerator() -> Accelerator:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    return accelerator


def samples(batches: Any) -> list[float]:
    return [float(sample) for _, (batch,) in batches for sample in batch]


def test_an_epoch_that_is_left_early_is_over() -> None:
    accelerator = an_accelerator()
    loader = accelerator.prepare(DataLoader(SAMPLES, batch_size=2, shuffle=True))
    with session(accelerator, every=100) as run:
        for epoch in range(3):
            seen = samples(islice(run.batches(loader), 2))
            assert len(set(seen)) == 4, "each sample of an epoch comes once"
            assert run.epoch == epoch
        assert run.step == 6


def test_a_loop_over_epochs_goes_through_those_that_are_left_in_one_session() -> None:
    accelerator = an_accelerator()
    loader = accelerator.prepare(DataLoader(SAMPLES, batch_size=2))
    seen = []
    for epoch, run in epochs(accelerator, 3, every=100):
        seen += [(epoch, step) for step, _ in run.batches(loader)]
    assert seen == [(0, 1), (0, 2), (0, 3), (0, 4)] + [(1, s) for s in range(5, 9)] + [
        (2, s) for s in range(9, 13)
    ]
    assert list(epochs(accelerator, 0, every=100)) == []


def test_metrics_that_are_set_before_the_first_batch_belong_to_its_step() -> None:
    accelerator = an_accelerator()
    loader = accelerator.prepare(DataLoader(SAMPLES, batch_size=2))
    run = AccelerateSession(accelerator, every=100)
    run.metrics["rate"] = 0.1
    next(run.batches(loader))
    assert run.metrics == {"rate": 0.1}


def test_with_another_number_of_ranks_the_data_goes_on_where_it_was(tmp_path: Path) -> None:
    saved = AccelerateSession(an_accelerator(), every=100)
    loader = ResumableLoader(SAMPLES, batch_size=2, shuffle=True)
    first = samples(islice(saved.batches(loader), 3))
    saved.write(tmp_path)
    own = tmp_path / "trainrun-rank0.pt"
    torch.save({**torch.load(own, weights_only=True), "world_size": 2}, own)

    resumed = AccelerateSession(an_accelerator(), every=100)
    with pytest.warns(UserWarning, match="saved by 2 ranks, but this run has 1"):
        resumed.read(tmp_path, step=3)
    rest = samples(resumed.batches(ResumableLoader(SAMPLES, batch_size=2, shuffle=True)))
    assert len(rest) == 2
    assert sorted(first + rest) == list(range(8))


def test_a_loader_whose_length_nobody_knows_is_refused_before_the_first_step() -> None:
    with session(an_accelerator(), every=1) as run:
        with pytest.raises(ValueError, match=r"a ResumableLoader without len\(\)"):
            next(run.batches(ResumableLoader(Unsized(), batch_size=1)))
        assert run.step == 0
