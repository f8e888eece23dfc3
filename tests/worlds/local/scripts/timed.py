"""Sleeps in every step, and notes by the clock when each was done: what goodput is measured by."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import trainrun

STEPS = int(os.environ.get("STEPS", "60"))
PAUSE = float(os.environ.get("PAUSE", "0.1"))

context = trainrun.get_context()
journal = Path(os.environ["JOURNAL"])
journal.mkdir(parents=True, exist_ok=True)
checkpoint = trainrun.get_checkpoint()
begin = checkpoint.step if checkpoint is not None else 0
for step in range(begin + 1, STEPS + 1):
    time.sleep(PAUSE)
    directory = None
    if step % 10 == 0:
        directory = trainrun.staging_directory()
        (Path(directory) / f"rank-{context.rank}.json").write_text(json.dumps({"step": step}))
    trainrun.report({}, step=step, checkpoint=directory)
    with (journal / f"rank-{context.rank}.txt").open("a") as file:
        file.write(f"{context.attempt} {step} {time.time()}\n")
