# train.py
import json
import time
from pathlib import Path

import trainrun

rank = trainrun.get_context().rank
step, weight = 0, 1.0
if checkpoint := trainrun.get_checkpoint():
    with checkpoint.as_directory() as directory:
        weight = json.loads(Path(directory, "model.json").read_text())
    step = checkpoint.step

while step < 100:
    time.sleep(0.05)  # one step of the training
    step, weight = step + 1, weight * 0.99
    if trainrun.should_save() or step % 10 == 0:
        directory = trainrun.staging_directory()
        if rank == 0:
            (directory / "model.json").write_text(json.dumps(weight))
        trainrun.report({"loss": weight}, step=step, checkpoint=directory)
    else:
        trainrun.report({"loss": weight}, step=step)
