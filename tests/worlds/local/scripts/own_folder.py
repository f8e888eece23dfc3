"""A training that knows nothing of TrainRun but its step: saves on SIGTERM, in a folder of its own.

As a Hugging Face Trainer does with `enable_jit_checkpoint`: the handler only takes note of the
signal, the loop saves after its step and returns, and the script ends with END (default 0). The
first attempt goes on until it is told.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

if os.environ.get("REPORTS") == "1":
    import trainrun

journal = Path(os.environ["JOURNAL"])
journal.mkdir(parents=True, exist_ok=True)
rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
own = journal.parent / f"own-{rank}"
told: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))


def write(step: int, text: str) -> None:
    with (journal / f"rank-{rank}.txt").open("a") as file:
        file.write(f"{attempt} {step} {text}\n")


step = int(own.read_text()) if own.exists() else 0
write(step, "begin")
while step < int(os.environ["STEPS"]) or attempt == "0":
    time.sleep(0.02)
    step += 1
    if os.environ.get("REPORTS") == "1":
        trainrun.report(step=step)
    if told:
        own.write_text(str(step))
        write(step, f"saved on {told}")
        sys.exit(int(os.environ.get("END", "0")))
write(step, "done")
