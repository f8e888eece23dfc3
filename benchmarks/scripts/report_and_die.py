"""Reports a checkpoint; once `report()` has returned on all ranks, one of them is killed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import trainrun

MARKS = Path(os.environ["MARKS"])
ROUNDS = int(os.environ["ROUNDS"])


def mark(name: str, value: object) -> None:
    """Written whole: whoever sees the file can read it."""
    new = MARKS / f"{name}.new"
    new.write_text(str(value))
    new.rename(MARKS / name)


def main() -> None:
    here = trainrun.get_context()
    checkpoint = trainrun.get_checkpoint()
    begin = checkpoint.step if checkpoint is not None else 0
    mark(f"resumed-{here.attempt}-{here.rank}", begin)
    if here.attempt > ROUNDS:
        return
    directory = trainrun.staging_directory()
    (Path(directory) / f"rank-{here.rank}.bin").write_bytes(os.urandom(1000))
    trainrun.report(step=here.attempt, checkpoint=directory)
    mark(f"returned-{here.attempt}-{here.rank}", time.time())
    everybody = [MARKS / f"returned-{here.attempt}-{rank}" for rank in range(here.world_size)]
    while not all(path.exists() for path in everybody):
        time.sleep(0.001)
    if here.rank == here.attempt % here.world_size:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


main()
