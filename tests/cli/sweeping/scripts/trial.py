"""A trial of STEPS steps; what it does besides says DO, by the number of the trial."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import trainrun

params = trainrun.get_params({"lr": 1.0, "width": 1})
number = int(os.environ["TRAINRUN_TRIAL"])
does = json.loads(os.environ.get("DO", "{}")).get(str(number), "")
attempt = trainrun.get_context().attempt
checkpoint = trainrun.get_checkpoint()
step = checkpoint.step if checkpoint else 0
line = [number, attempt, step, params, sys.argv[1:], os.environ["TRAINRUN_PARAM_WIDTH"]]
with Path(os.environ["JOURNAL"]).open("a") as journal:
    journal.write(json.dumps(line) + "\n")

while step < int(os.environ.get("STEPS", "5")):
    time.sleep(float(os.environ.get("PAUSE", "0.02")))
    step += 1
    if does == "fails" or (does == "fails once" and attempt == 1 and step == 4):
        raise ValueError(f"trial {number} cannot do step {step}")
    value = params["width"] * 10 + params["lr"] / step
    directory = trainrun.staging_directory()
    (directory / "step").write_text(str(step))
    if does == "tells nothing":
        trainrun.report({"width": params["width"]}, step=step, checkpoint=directory)
        continue
    loss = float("nan") if does == "nan" else value
    trainrun.report({"loss": loss}, step=step, checkpoint=directory)
