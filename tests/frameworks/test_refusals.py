"""What a framework's training cannot do with the run is said before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import DataLoader

from trainrun.accelerate import session
from trainrun.lightning import TrainRunCallback

pytestmark = pytest.mark.filterwarnings("ignore")


class Line(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any) -> torch.Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder: Path, loader: Any, **options: Any) -> None:
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=2,
        logger=False,
        log_every_n_steps=0,  # it may log nothing
        default_root_dir=folder,
        callbacks=[TrainRunCallback(every_n_steps=2)],
        **options,
    )
    trainer.fit(Line(), loader)


def test_lightning_is_told_that_a_loader_has_no_state(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"a DataLoader has no state_dict\(\), so an epoch"):
        fit(tmp_path, DataLoader(torch.zeros(4, 1)))


def test_lightning_is_told_that_strategies_that_save_otherwise_cannot_be_saved(
    tmp_path: Path,
) -> None:
    class Sharding(SingleDeviceStrategy):
        """As SingleDeviceXLAStrategy is one."""

    with pytest.raises(ValueError, match="not with Sharding: save sharded models with trainrun"):
        fit(tmp_path, DataLoader(torch.zeros(4, 1)), strategy=Sharding("cpu"))


def test_accelerate_is_told_that_a_loader_was_not_prepared() -> None:
    with session(Accelerator(cpu=True), every=1) as run:
        with pytest.raises(ValueError, match=r"a list says nothing of its place: let accelerator"):
            next(run.batches([1]))


def test_accelerate_is_told_to_leave_the_place_of_checkpoints_to_the_run(tmp_path: Path) -> None:
    naming = ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=naming)
    with pytest.raises(ValueError, match="say where checkpoints lie, which TrainRun does"):
        with session(accelerator, every=1):
            pass


@pytest.mark.parametrize("number", [0, -1])
def test_checkpoints_come_every_step_or_less_often(number: int) -> None:
    with pytest.raises(ValueError, match="every_n_steps must be 1 or more"):
        TrainRunCallback(every_n_steps=number)
