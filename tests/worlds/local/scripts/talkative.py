"""A training without torch that prints a line for each step, and writes down that it has.

What stands in the journal was printed before: a process that is killed in between has printed more.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import trainrun

context = trainrun.get_context()
checkpoint = trainrun.get_checkpoint()
begin = 0 if checkpoint is None else checkpoint.step
journal = Path(os.environ["JOURNAL"])
journal.mkdir(parents=True, exist_ok=True)

for step in range(begin + 1, 25):
    text = f"step {step}"
    print(text, flush=True)
    with (journal / f"rank-{context.rank}.txt").open("a") as file:
        file.write(f"{context.attempt} {step} {text}\n")
    directory = None
    if step % 4 == 0:
        directory = trainrun.staging_directory()
        (directory / f"rank-{context.rank}.json").write_text(json.dumps({"step": step}))
    trainrun.report({"loss": 1 / step}, step=step, checkpoint=directory)
    time.sleep(0.1)
