"""A trial of a search: two workers that meet at each step; the loss is a function of the lr."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import trainrun

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--pause", type=float, default=0.1)
parser.add_argument("--lr", type=float, required=True)
given = parser.parse_args()

params = trainrun.get_params({"lr": 0.0})
assert params["lr"] == given.lr, "both ways say the same"
context = trainrun.get_context()
step = 0
if checkpoint := trainrun.get_checkpoint():
    with checkpoint.as_directory() as directory:
        step = json.loads(Path(directory, f"rank-{context.rank}.json").read_text())

while step < given.steps:
    time.sleep(given.pause)
    step += 1
    metrics = {"loss": (given.lr - 0.01) ** 2 + 1.0 / step}
    if trainrun.should_save() or step % 5 == 0 or step == given.steps:
        directory = trainrun.staging_directory()
        (directory / f"rank-{context.rank}.json").write_text(json.dumps(step))
        trainrun.report(metrics, step=step, checkpoint=directory)
    else:
        trainrun.report(metrics, step=step)
