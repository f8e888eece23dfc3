"""kill -9 of one rank -> all new processes spawned.

Method: `trainrun run` with four workers of one process each. A process writes the time of day as
its very first line, so a figure includes the start of the Python interpreter. The benchmark kills
one rank after the other with SIGKILL; the end is the latest first line of the next attempt.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import machine, under_trainrun
from benchmarks.verdict import end, must

SCRIPT = Path(__file__).parent / "scripts" / "wait_to_be_killed.py"
RANKS, ROUNDS = 4, 20
LIMIT = 0.2
"""Seconds."""


def main() -> None:
    print(f"{machine()}; {RANKS} workers, {ROUNDS} kills")
    took = []
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as folder:
        job = under_trainrun(SCRIPT, Path(folder) / "job", ranks=RANKS)
        try:
            for attempt in range(1, ROUNDS + 1):
                job.wait_for(*(f"ready-{attempt}-{rank}" for rank in range(RANKS)))
                time.sleep(0.5)  # so that the interpreters' start is over
                victim = job.pid(f"pid-{attempt}-{attempt % RANKS}")
                killed = time.time()
                os.kill(victim, signal.SIGKILL)
                spawned = job.wait_for(*(f"line-{attempt + 1}-{rank}" for rank in range(RANKS)))
                took.append(spawned - killed)
        finally:
            job.stop()
    print(
        f"kill -9 -> first line of all new processes: median {median(took) * 1000:.0f} ms, "
        f"fastest {min(took) * 1000:.0f} ms, slowest {max(took) * 1000:.0f} ms "
        f"{must('median', median(took) * 1000, LIMIT * 1000, 'ms')}"
    )
    end()


if __name__ == "__main__":
    main()
