"""A training without torch whose next step depends on all that has to be saved: weight, momentum
and random numbers. MODE says which part of its recovery is broken; undisturbed it is always well,
but for the modes that say otherwise.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import trainrun

MODE = os.environ.get("MODE", "")
STEPS = int(os.environ.get("STEPS", "60"))
EVERY = int(os.environ.get("EVERY", "10"))

rank = trainrun.get_context().rank
drawn = random.Random(7 if MODE != "unequal" else None)
step, weight, momentum = 0, 1.0, 0.0


def load() -> int:
    global weight, momentum  # noqa: PLW0603
    checkpoint = trainrun.get_checkpoint()
    if checkpoint is None or MODE == "never-loads":
        return 0
    if MODE == "breaks":
        raise KeyError("optimizer")
    if MODE == "opens-nothing":
        return int(checkpoint.step)
    with checkpoint.as_directory() as directory:
        saved = json.loads(Path(directory, "state.json").read_text())
    weight = saved["weight"]
    momentum = 0.0 if MODE == "forgets-momentum" else saved["momentum"]
    if MODE != "forgets-random":
        version, internal, gauss = saved["random"]
        drawn.setstate((version, tuple(internal), gauss))
    return int(checkpoint.step) + {"repeats": -3, "skips": 2}.get(MODE, 0)


def save() -> Path:
    directory = trainrun.staging_directory()
    if rank == 0:
        state = {"weight": weight, "momentum": momentum, "random": drawn.getstate()}
        (directory / "state.json").write_text(json.dumps(state))
    return directory


if MODE == "fails":
    raise ValueError("there is no data")
if folder := os.environ.get("SEEN"):
    names = ("TRAINRUN_RUN", "WANDB_MODE", "MLFLOW_TRACKING_URI")
    seen = " ".join(os.environ[name] for name in names)
    with Path(folder).open("a") as file:
        file.write(f"{seen}\n")
step = load()
while step < STEPS:
    time.sleep(0.05)
    loss = weight + 0.01 * drawn.random()
    momentum = 0.9 * momentum + weight
    weight -= 0.01 * momentum
    step += 1
    asked = MODE != "never-asks" and trainrun.should_save()
    if MODE == "rank-0-alone" and rank != 0:
        continue
    told = {} if MODE == "no-metrics" else {"loss": loss, "step_time": time.monotonic()}
    saves = MODE != "asks-in-vain" if asked else step % EVERY == 0
    if saves:
        trainrun.report(told, step=step, checkpoint=save())
    else:
        trainrun.report(told, step=step)
