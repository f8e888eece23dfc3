"""A Lightning Trainer that saves on SIGTERM by itself and has never heard of TrainRun.

It goes on from a folder that all attempts share. Run by the tests.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import lean  # noqa: F401
import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader

STEPS = 60
STEP_SECONDS = 0.15


class Slow(Callback):
    def on_train_start(self, trainer: Any, *_: Any) -> None:
        print(f"begins at step {trainer.global_step}", flush=True)

    def on_train_batch_end(self, *_: Any) -> None:
        time.sleep(STEP_SECONDS)


class Line(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any) -> torch.Tensor:
        return self.layer(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    out = Path(os.environ["OUT"])
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=STEPS,
        default_root_dir=out,
        logger=False,
        enable_progress_bar=False,
        callbacks=[
            Slow(),
            ModelCheckpoint(out, filename="{step}", save_top_k=-1, save_on_exception=True),
        ],
    )
    saved = sorted(out.glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
    trainer.fit(
        Line(),
        DataLoader(torch.ones(2 * STEPS, 1)),
        ckpt_path=saved[-1] if saved else None,
    )
    print(f"ends at step {trainer.global_step}", flush=True)


if __name__ == "__main__":
    main()
