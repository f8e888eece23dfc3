"""Reports each step when it is done, and once more with its files, as hooks of frameworks do."""

from __future__ import annotations

import time
from pathlib import Path

import trainrun

rank = trainrun.get_context().rank
checkpoint = trainrun.get_checkpoint()
step = 0
if checkpoint:
    step = checkpoint.step
    with checkpoint.as_directory() as directory:
        files = sorted(path.name for path in Path(directory).iterdir())
    print(f"resumed from {step} with {files}", flush=True)
while step < 8:
    step += 1
    trainrun.report({"loss": 1 / step}, step=step)
    time.sleep(0.2 if rank == 1 else 0.02)  # rank 1 evaluates; the other has saved long since
    if step % 2 == 0:
        saved = trainrun.staging_directory()
        (saved / f"rank-{rank}").write_text(str(step))
        trainrun.report(step=step, checkpoint=saved)
