"""A process that writes and commits checkpoints without end, to be killed at any moment.

    python uploader.py URI SCRATCH ATTEMPT FIRST_STEP

It prints `committed STEP` once a commit has been acknowledged. Two workers' parts with two files
each, the same `common.json` among them, then the commit, then retention: all that an agent writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.checkpoints import contents
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.writer import commit_if_complete, scan, write_part

SIZE = 100_000
WORKERS = 2


def main(uri: str, scratch: str, attempt: int, step: int) -> None:
    run = RunStore(open_store(uri), "digits")
    while True:
        for worker in range(WORKERS):
            directory = Path(scratch, f"rank-{worker}")
            directory.mkdir(parents=True, exist_ok=True)
            for name, content in contents(attempt, step, worker, SIZE).items():
                (directory / name).write_bytes(content)
            write_part(
                run,
                attempt=attempt,
                step=step,
                worker=worker,
                workers=WORKERS,
                files=scan(directory, rank=worker),
                metrics={"step": step},
            )
        if commit_if_complete(run, attempt=attempt, step=step) is not None:
            # In one write: it may be killed between two.
            print(f"committed {step}\n", end="", flush=True)
        retain(run, attempt=attempt, keep=2)
        step += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
