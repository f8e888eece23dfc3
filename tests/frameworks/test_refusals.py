"""What a framework's training cannot do with the run is said before it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import LearningRateFinder
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import DataLoader, IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import EarlyStoppingCallback, TrainingArguments
from transformers import Trainer as HuggingFaceTrainer

from trainrun import transformers as hugging_face
from trainrun.accelerate import session
from trainrun.contract.environment import Exchange, ResumePoint
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


def fit(folder: Path, loader: Any, *callbacks: Callback, **options: Any) -> None:
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=2,
        logger=False,
        log_every_n_steps=0,  # it may log nothing
        default_root_dir=folder,
        callbacks=[*callbacks, TrainRunCallback(every_n_steps=2)],
        **options,
    )
    trainer.fit(Line(), loader)


def test_lightning_is_told_that_a_loader_has_no_state(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"a DataLoader has no state_dict\(\), so an inter"):
        fit(tmp_path, DataLoader(torch.zeros(4, 1)))


def test_lightning_is_told_that_strategies_that_save_otherwise_cannot_be_saved(
    tmp_path: Path,
) -> None:
    class Sharding(SingleDeviceStrategy):
        """As SingleDeviceXLAStrategy is one."""

    with pytest.raises(ValueError, match="not Sharding: save sharded models with trainrun"):
        fit(tmp_path, DataLoader(torch.zeros(4, 1)), strategy=Sharding("cpu"))


@pytest.mark.case(
    "script", "A framework's option needs state that a resume cannot carry", counted="maxFailures"
)
def test_lightning_is_told_that_what_searches_first_would_lose_the_checkpoint(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match="LearningRateFinder makes the Trainer forget its resume"):
        fit(tmp_path, DataLoader(torch.zeros(4, 1)), LearningRateFinder())


def test_accelerate_is_told_that_a_loader_was_not_prepared() -> None:
    with session(Accelerator(cpu=True), every=1) as run:
        with pytest.raises(ValueError, match=r"a list does not save its position: pass it through"):
            next(run.batches([1]))


def test_accelerate_is_told_to_leave_the_place_of_checkpoints_to_the_run(tmp_path: Path) -> None:
    naming = ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=naming)
    with pytest.raises(ValueError, match="leave out automatic_checkpoint_naming"):
        with session(accelerator, every=1):
            pass


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.zeros(4, 1))

    def __len__(self) -> int:
        return 4


def kept_stream() -> StatefulDataLoader[torch.Tensor]:
    return StatefulDataLoader(Stream(), num_workers=1, persistent_workers=True)


SHORTER = "a StatefulDataLoader: with persistent_workers=True an iterable dataset would begin each"


def test_lightning_is_told_that_later_epochs_of_a_stream_would_be_shorter(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=SHORTER):
        fit(tmp_path, kept_stream())


def test_accelerate_is_told_that_later_epochs_of_a_stream_would_be_shorter() -> None:
    with session(Accelerator(cpu=True), every=1) as run, pytest.raises(ValueError, match=SHORTER):
        next(run.batches(kept_stream()))


class Square(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, inputs: Any, labels: Any = None) -> Any:
        return {"loss": (self.layer(inputs) - labels).square().mean()}


def hugging_face_trainer(folder: Path, *callbacks: Any, **options: Any) -> HuggingFaceTrainer:
    data = [{"inputs": torch.ones(1), "labels": torch.ones(1)}] * 4
    arguments = TrainingArguments(
        str(folder), max_steps=2, use_cpu=True, report_to=[], disable_tqdm=True, **options
    )
    trainer = HuggingFaceTrainer(
        None, arguments, train_dataset=data, eval_dataset=data, model_init=lambda _: Square()
    )
    for callback in (*callbacks, hugging_face.TrainRunCallback()):
        trainer.add_callback(callback)
    return trainer


BEST = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}


def test_hugging_face_is_told_that_callbacks_would_begin_anew(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"EarlyStoppingCallback would lose state .*: set restore_"
    ):
        hugging_face_trainer(tmp_path, EarlyStoppingCallback(), **BEST).train()


def test_hugging_face_is_told_that_trials_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"hyperparameter_search\(\) saves each trial in its own"):
        hugging_face_trainer(tmp_path).hyperparameter_search(
            lambda trial: {"learning_rate": trial.suggest_float("lr", 0.1, 0.2)}, n_trials=1
        )


def test_hugging_face_is_told_that_it_was_not_given_the_checkpoint_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Exchange(
        socket=tmp_path / "socket",
        staging=tmp_path,
        control_file=tmp_path / "control",
        resume=ResumePoint(attempt=1, step=12, uri="file:///checkpoint"),
    )
    for name, value in agent.write().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"step 12, but train\(\) does not resume from it: ca"):
        hugging_face_trainer(tmp_path).train()


@pytest.mark.parametrize("number", [0, -1])
def test_checkpoints_come_every_step_or_less_often(number: int) -> None:
    with pytest.raises(ValueError, match="every_n_steps must be 1 or more"):
        TrainRunCallback(every_n_steps=number)
