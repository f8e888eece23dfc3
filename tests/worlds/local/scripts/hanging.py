"""Counts steps with a real collective between two of them: all ranks wait for the slowest one.

In attempt 1 rank 1 sleeps for ever inside step HANG_AT, and does not hear SIGTERM. Before step
SECTION_AT all ranks are in a long section for SECTION seconds. Before step PAUSE_AT rank 1 waits
for the file JOURNAL/go, in a long section of a second.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import trainrun

HANG_AT = int(os.environ.get("HANG_AT", "0"))
SECTION_AT = int(os.environ.get("SECTION_AT", "0"))
SECTION = float(os.environ.get("SECTION", "0"))
PAUSE_AT = int(os.environ.get("PAUSE_AT", "0"))
STEPS = 6

context = trainrun.get_context()
here = Path(os.environ["JOURNAL"]) / f"attempt-{context.attempt}"
here.mkdir(parents=True, exist_ok=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)


def barrier(step: int) -> None:
    """Return once every rank is here."""
    (here / f"{step}-{context.rank}").touch()
    while len(list(here.glob(f"{step}-*"))) < context.world_size:
        time.sleep(0.01)


checkpoint = trainrun.get_checkpoint()
for step in range(checkpoint.step + 1 if checkpoint else 1, STEPS + 1):
    if step == SECTION_AT:
        with trainrun.long_section("evaluate", timeout=60):
            time.sleep(SECTION)
    if context.attempt == 1 and context.rank == 1 and step == HANG_AT:
        while True:
            time.sleep(3600)
    if context.rank == 1 and step == PAUSE_AT:
        with trainrun.long_section("wait", timeout=1):
            while "go" not in os.listdir(here.parent):
                time.sleep(0.2)
    directory = trainrun.staging_directory()
    (directory / f"rank-{context.rank}.txt").write_text(str(step))
    trainrun.report({"loss": 1 / step}, step=step, checkpoint=directory)
    barrier(step)
