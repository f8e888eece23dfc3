"""A small network that a Lightning Trainer teaches to copy noise; run by the tests.

Dropout, batch normalization, AdamW, gradient accumulation, a learning rate that falls, data drawn
and changed at random, validation inside epochs that draws random numbers, and an average of weights
that the module keeps by itself. An epoch has fifteen batches: two for each step, one for the last.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import lean  # noqa: F401
import lightning as L
import torch
from common import STEPS, digest, hang_before, tell_weights, wait_after
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO
from torch.utils.data import DataLoader, TensorDataset

import trainrun
from trainrun.lightning import TrainRunCallback, resume_path
from trainrun.torch import ResumableLoader


class Disturbed(Callback):
    """Stays where a fault is to strike."""

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        hang_before(trainer.global_step + 1)

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        wait_after(trainer.global_step)


class Net(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32),
            torch.nn.BatchNorm1d(32),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(32, 8),
        )
        self.register_buffer("average", torch.zeros(8))

    def training_step(self, batch: Any) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, *_: Any) -> None:
        self.average.lerp_(self.layers[3].bias.detach(), 0.1)

    def validation_step(self, batch: Any) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def loss(self, batch: Any) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.layers(batch), batch)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        falling = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.8)
        steps = {"scheduler": falling, "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": steps}


class SlowCheckpointIO(TorchCheckpointIO):
    def save_checkpoint(self, *args: Any, **more: Any) -> None:
        time.sleep(0.5)  # some steps
        super().save_checkpoint(*args, **more)


def collate(samples: list[Any]) -> torch.Tensor:
    clean = torch.stack([sample for (sample,) in samples])
    return clean + 0.1 * torch.randn(clean.shape)


def main() -> None:
    context, out = trainrun.get_context(), Path(os.environ["OUT"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(60, 8))
    model = Net()
    torch.manual_seed(context.rank)
    loader = DataLoader(
        data,
        batch_size=2,
        shuffle=True,
        num_workers=int(os.environ.get("LOADERS", "0")),
        collate_fn=collate,
    )
    disk = out / f"disk{context.attempt if 'NEW_DISKS' in os.environ else ''}"
    # Its best is the first one, as the loss falls.
    best = ModelCheckpoint(disk, monitor="val_loss", mode="max", save_top_k=1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=context.local_world_size,
        num_nodes=context.world_size // context.local_world_size,
        strategy="ddp",
        max_steps=STEPS,
        accumulate_grad_batches=2,
        val_check_interval=7,
        default_root_dir=disk,
        logger=False,
        enable_progress_bar=False,
        log_every_n_steps=1,
        plugins=[AsyncCheckpointIO(SlowCheckpointIO())] if "ASYNCHRONOUS" in os.environ else [],
        callbacks=[
            Disturbed(),
            best,
            EarlyStopping("val_loss", patience=100),
            TrainRunCallback(every_n_steps=4),
        ],
    )
    validation = DataLoader(data, batch_size=10, shuffle=True, collate_fn=collate)
    trainer.fit(model, ResumableLoader.of(loader), validation, ckpt_path=resume_path())
    tell_weights(model)
    (out / f"best-{context.rank}").write_text(
        digest(Net.load_from_checkpoint(best.best_model_path))
    )


if __name__ == "__main__":
    main()
