"""A Lightning Trainer that goes on exactly where it was.

Runs as a TrainRun (see trainrun.yaml) and under torchrun:

    trainrun run examples/lightning/trainrun.yaml
    torchrun --nproc-per-node 2 examples/lightning/train.py
"""

from __future__ import annotations

import argparse
import hashlib
import time
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset, random_split

import trainrun
from trainrun.lightning import TrainRunCallback, resume_path
from trainrun.torch import ResumableLoader


class Regression(LightningModule):
    def __init__(self, pace: float) -> None:
        super().__init__()
        self.pace = pace
        self.net = torch.nn.Sequential(
            torch.nn.Linear(16, 64),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.1),
            torch.nn.Linear(64, 1),
        )

    def training_step(self, batch: Any) -> torch.Tensor:
        time.sleep(self.pace)  # makes a small model slow enough to be watched
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def loss(self, batch: Any) -> torch.Tensor:
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.net(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to sleep in each batch")
    options = parser.parse_args()

    context = trainrun.get_context()
    torch.set_num_threads(1)  # another number of threads gives other results
    torch.manual_seed(0)  # the same data and first weights on every rank
    inputs = torch.randn(1000, 16)
    data = TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))
    training, validation = random_split(data, [800, 200])
    model = Regression(options.pace)
    torch.manual_seed(context.rank)  # other dropout on every rank

    trainer = Trainer(
        accelerator="cpu",
        devices=context.local_world_size,
        num_nodes=context.world_size // context.local_world_size,
        max_steps=options.steps,
        accumulate_grad_batches=2,
        logger=False,
        enable_progress_bar=False,
        log_every_n_steps=10,
        default_root_dir="/tmp/lightning-example",
        callbacks=[ModelCheckpoint(monitor="val_loss"), TrainRunCallback(every_n_steps=10)],
    )
    trainer.fit(
        model,
        ResumableLoader.of(DataLoader(training, batch_size=16, shuffle=True)),
        DataLoader(validation, batch_size=50),
        ckpt_path=resume_path(),
    )
    print(f"rank {context.rank}: weights {digest(model)}", flush=True)


def digest(model: torch.nn.Module) -> str:
    """Return what tells two models apart that differ in a single bit."""
    sha = hashlib.sha256()
    for parameter in model.parameters():
        sha.update(parameter.detach().numpy().tobytes())
    return sha.hexdigest()[:16]


if __name__ == "__main__":
    main()
