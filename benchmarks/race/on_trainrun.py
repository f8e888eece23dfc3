"""The race's training as a script for TrainRun."""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed as dist

import trainrun

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.race.training import LargeTraining

dist.init_process_group("gloo")
training = LargeTraining()
step = 0
if checkpoint := trainrun.get_checkpoint():
    with checkpoint.as_directory() as directory:
        training.load(Path(directory, "training.pt"))
    step = checkpoint.step
training.began(step)
while True:
    step += 1
    training.step(step)
    if training.save_is_due:
        with training.saving():
            folder = trainrun.staging_directory()
            training.save(folder / "training.pt")
            trainrun.report(step=step, checkpoint=folder, whole=True)
    else:
        trainrun.report(step=step)
