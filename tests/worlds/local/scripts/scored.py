"""A training whose accuracy comes and goes: saves each step, and waits until that is committed.

In the end it waits until the store under STORED keeps what KEPT names, and nothing else.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import trainrun

ACCURACY = (0.2, 0.9, 0.5, math.nan, 0.4, 0.3)
STORED = Path(os.environ["STORED"])
KEPT = os.environ["KEPT"].split()


def committed() -> list[str]:
    return sorted(path.parent.name for path in STORED.glob("*/manifest.json"))


rank = trainrun.get_context().rank
for step, accuracy in enumerate(ACCURACY, start=1):
    directory = trainrun.staging_directory()
    (directory / f"rank-{rank}.txt").write_text(str(step))
    # What the other ranks measure is not what counts.
    trainrun.report(
        {"accuracy": accuracy if rank == 0 else float(step)},
        step=step,
        checkpoint=directory,
        metadata={"said by": rank},
    )
    while f"step-{step:09}-attempt-1" not in committed():
        time.sleep(0.01)
    # Nobody saves the next one, and so nothing is deleted, before all ranks have seen this one.
    (STORED.parent / f"seen-{step}-{rank}").touch()
    while len(list(STORED.parent.glob(f"seen-{step}-*"))) < trainrun.get_context().world_size:
        time.sleep(0.01)
while committed() != KEPT:
    time.sleep(0.01)
