"""Trains a few steps, saves them, and ends in its first attempts as it is told.

ENDS: how, an expression such as `trainrun.RetryError("no data")` or `SystemExit(3)`.
ATTEMPTS: in how many attempts. STEPS: before it does so; 0: before the first.
"""

from __future__ import annotations

import os

import trainrun

here, found = trainrun.get_context(), trainrun.get_checkpoint()
steps, last = int(os.environ.get("STEPS", "0")), 6
for step in range(found.step + 1 if found else 1, last + 1):
    if step == steps + 1 and here.attempt <= int(os.environ["ATTEMPTS"]) and here.rank == 1:
        raise eval(os.environ["ENDS"])
    directory = trainrun.staging_directory()
    (directory / f"rank-{here.rank}").write_text(str(step))
    trainrun.report(step=step, checkpoint=directory)
