"""The loop of Ray Train's fault-tolerance guide, its imports changed and a step added."""

from __future__ import annotations

import os
import tempfile

import trainrun as ray


def train_fn_per_worker(config: dict[str, int]) -> None:
    start = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as checkpoint_dir:
            with open(os.path.join(checkpoint_dir, "model.pt")) as file:
                start = int(file.read()) + 1
        print(f"resumed at {start}, loss was {checkpoint.metrics['loss']}", flush=True)

    for epoch in range(start, config["num_epochs"]):
        with tempfile.TemporaryDirectory() as temp_checkpoint_dir:
            with open(os.path.join(temp_checkpoint_dir, "model.pt"), "w") as file:
                file.write(str(epoch))
            ray.train.report(
                {"loss": 1 / (epoch + 1)},
                step=epoch,
                checkpoint=ray.train.Checkpoint.from_directory(temp_checkpoint_dir),
            )


train_fn_per_worker({"num_epochs": 8})
