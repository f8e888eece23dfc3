"""A script that finds its output folder after a restart, says so and returns.

REPORTS=1: it reports its steps. CHECKPOINT: it saves every so many steps. The first attempt is
killed from outside; STEPS: it does not get further. FINISH=1: it says that all is done.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import trainrun

rank, steps = os.environ["RANK"], int(os.environ["STEPS"])
folder = Path(os.environ["JOURNAL"]).parent / f"experiment-{rank}"
if folder.exists():
    if os.environ.get("FINISH") == "1":
        trainrun.finish()
    print("Experiment already exists")
    raise SystemExit
folder.mkdir()
save = int(os.environ.get("CHECKPOINT", "1000"))
for step in range(1, steps + 1):
    time.sleep(0.05)
    if os.environ.get("REPORTS") != "1":
        continue
    if step % save:
        trainrun.report(step=step)
        continue
    directory = trainrun.staging_directory()
    (directory / f"rank-{rank}").write_text(str(step))
    trainrun.report(step=step, checkpoint=directory)
os.kill(os.getpid(), 9)
