"""A training without torch whose next step depends on all that has to be saved: weight, momentum,
schedule, place in the data and random numbers. MODE says which part of its recovery is broken;
undisturbed it is always well, but for the modes that say otherwise.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import trainrun

MODE = os.environ.get("MODE", "")
STEPS = int(os.environ.get("STEPS", "60"))
EVERY = int(os.environ.get("EVERY", "10"))
SAVED = os.environ.get("SAVED", "")
"""A file that the first attempt awaits before step 25: a pattern, without its first slash, since a
drill takes paths for its own folder."""
SLOW = 5.0
"""Seconds of a slow save or an evaluation."""

NOTICED = ("never-asks", "asks-in-vain", "saves-slowly")
"""Modes in which no checkpoint comes of itself while a notice runs."""

rank, attempt = trainrun.get_context().rank, trainrun.get_context().attempt
drawn = random.Random(7 if MODE != "unequal" else None)
step, weight, momentum, scheduled, place, average = 0, 1.0, 0.0, 0, 0, 0.0


def load() -> int:
    checkpoint = trainrun.get_checkpoint() if MODE != "never-looks" else None
    if checkpoint is None or MODE == "never-loads":
        return 0
    if MODE == "breaks":
        raise KeyError("optimizer")
    if MODE == "opens-nothing":
        return int(checkpoint.step)
    with checkpoint.as_directory() as directory:
        saved = json.loads(Path(directory, "state.json").read_text())
    if MODE == "keeps-its-own":
        saved = json.loads(Path(os.environ["OWN"]).read_text())
    restore(saved)
    if MODE == "keeps-its-own":
        return int(saved["step"])
    return int(checkpoint.step) + {"repeats": -3, "skips": 2}.get(MODE, 0)


def restore(saved: dict[str, Any]) -> None:
    global weight, momentum, scheduled, place, average  # noqa: PLW0603
    if MODE != "loads-nothing":
        weight = saved["weight"] * (1.05 if MODE == "loads-roughly" else 1)
        momentum = 0.0 if MODE == "forgets-momentum" else saved["momentum"]
    scheduled = 0 if MODE == "forgets-schedule" else saved["scheduled"]
    place = 0 if MODE == "forgets-place" else saved["place"]
    average = 0.0 if MODE == "forgets-average" else saved["average"]
    if MODE != "forgets-random":
        version, internal, gauss = saved["random"]
        drawn.setstate((version, tuple(internal), gauss))


def save(*, asked: bool) -> Path:
    directory = trainrun.staging_directory()
    if asked and MODE == "saves-slowly":
        time.sleep(SLOW)
    if rank == 0:
        state = {
            "step": step,
            "weight": weight,
            "momentum": momentum,
            "scheduled": scheduled,
            "place": place,
            "average": average,
            "random": drawn.getstate(),
        }
        (directory / "state.json").write_text(json.dumps(state))
        if MODE == "keeps-its-own":
            Path(os.environ["OWN"]).write_text(json.dumps(state))
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
    while step == 24 and attempt == 1 and SAVED and not glob.glob(f"/{SAVED}", recursive=True):
        time.sleep(0.01)
    rate = 0.01 * 0.99**scheduled
    batch = place * 7919 % 101 / 101
    loss = weight + 0.01 * batch + 0.01 * drawn.random()
    momentum = 0.9 * momentum + weight
    weight -= rate * momentum
    average = 0.9 * average + 0.1 * weight
    step, scheduled, place = step + 1, scheduled + 1, place + 1
    if MODE == "evaluates" and step % EVERY == 0:
        time.sleep(SLOW)
    asked = MODE != "never-asks" and bool(trainrun.should_save())
    if MODE == "rank-0-alone" and rank != 0:
        continue
    told = {
        "loss": loss,
        "lr": rate,
        "batch_hash": hashlib.sha256(str(batch).encode()).hexdigest()[:12],
        "step_time": time.monotonic(),
    }
    if MODE == "no-metrics":
        told = {}
    due = step % EVERY == 0 and (MODE not in NOTICED or step <= 2 * EVERY)
    saves = MODE != "asks-in-vain" if asked else due
    if saves:
        trainrun.report(told, step=step, checkpoint=save(asked=asked))
    else:
        trainrun.report(told, step=step)
