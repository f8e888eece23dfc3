"""What a Hugging Face Trainer saves on notice, in one process and without a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

import trainrun.transformers
from trainrun.transformers import TrainRunCallback

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES = [{"x": torch.ones(1), "labels": torch.ones(1)}] * 12


class EverWorse(torch.nn.Module):
    """Its first evaluation is the best one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.evaluated = 0

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.layer(x)
        if self.training:
            return {"loss": (y - labels).square().mean(), "logits": y}
        self.evaluated += 1
        return {"loss": torch.tensor(float(self.evaluated)), "logits": y}


@pytest.mark.parametrize(
    ("every", "notice", "expected"),
    [
        (3, 5, {"saved": [3, 5], "evaluated": [3, 6, 9]}),
        (3, 6, {"saved": [3, 7], "evaluated": [3, 6, 9]}),
        (1, 6, {"saved": [1, 7], "evaluated": [1, 2, 3, 4, 5, 6, 8, 9]}),
    ],
    ids=["no evaluation", "an evaluation in the same step", "an evaluation in every step"],
)
def test_a_trainer_that_saves_only_the_best_saves_once_before_a_worker_is_taken_away(
    every: int,
    notice: int,
    expected: dict[str, list[int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An evaluation in the step of the notice undid the save, and it was not asked for again."""
    told: list[tuple[int, dict[str, Any], Path | None]] = []

    def report(metrics: dict[str, Any], *, step: int, checkpoint: Path | None) -> None:
        told.append((step, metrics, checkpoint))

    monkeypatch.setattr(trainrun.transformers, "report", report)
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=9,
        per_device_train_batch_size=1,
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="best",
        metric_for_best_model="loss",
        greater_is_better=False,
        logging_strategy="no",
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(EverWorse(), arguments, train_dataset=SAMPLES, eval_dataset=SAMPLES[:1])
    trainer.add_callback(TrainRunCallback())
    monkeypatch.setattr(
        trainrun.transformers, "should_save", lambda: trainer.state.global_step >= notice
    )
    trainer.train()
    assert expected == {
        "saved": [step for step, _, checkpoint in told if checkpoint is not None],
        "evaluated": [step for step, metrics, _ in told if "eval_loss" in metrics],
    }
