"""What a step takes beside standbys that are ready, and while they are loaded.

Method: the same DDP script with two gloo ranks under `trainrun run`, with workers.warmStart and
without it, in pairs of fresh jobs in turns. Steps of more than 20 ms that keep a core busy each.
Ready: steps of SECONDS after the last standby has said so; without: as many seconds, as long after
the start. Loading: steps between the start of the first standby and then. Medians of the pairs'
ratios.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import Job, machine, under_trainrun
from benchmarks.verdict import end, must

SCRIPT = Path(__file__).parent / "scripts" / "ddp_steps.py"
RANKS = 2
PAIRS = int(os.environ.get("STANDBY_PAIRS", "8"))
SECONDS = 21.0
SETTLED = 15.0
"""Seconds after the first step from which a job without standbys is measured: about as long as they
take to load."""
SETTINGS = {"WIDTH": "768", "WARM": "20"}
LIMIT = 1.01
READY = re.compile(r"standby ready after ([\d.]+) s")


@dataclass(frozen=True, slots=True)
class Steps:
    """Medians of one job, in seconds."""

    settled: float
    """Of steps at its end."""
    loading: float
    """Of steps while standbys were loaded; 0 where none were."""


def measure(job: Job, *, warm: bool) -> Steps:
    """Let it make its steps."""
    try:
        first = job.wait_for(*(f"step-0-{rank}" for rank in range(RANKS)))
        loaded = _wait_for_standbys(job) if warm else (first, first + SETTLED)
        time.sleep(max(loaded[1] + SECONDS - time.time(), 0.0))
        (job.marks / "enough").touch()
        job.wait_for("end-0-0")
        steps = json.loads((job.marks / "durations-0.json").read_text())
    finally:
        job.stop()
    while_loading = [took for end, took in steps if loaded[0] + took < end < loaded[1]]
    return Steps(
        settled=median(took for end, took in steps if end > loaded[1] + took),
        loading=median(while_loading) if warm else 0.0,
    )


def _wait_for_standbys(job: Job) -> tuple[float, float]:
    """From when until when they were loaded."""
    before = len(READY.findall((job.folder / "log.txt").read_text()))
    begun = []
    for number in range(1, RANKS + 1):
        line = job.wait_for_line("standby ready", before + number)[before + number - 1]
        found = READY.search(line)
        assert found is not None, line
        begun.append(time.time() - float(found[1]))
    return min(begun), time.time()


def main() -> None:
    print(f"{machine()}; {RANKS} gloo ranks, {PAIRS} pairs in turns, {SECONDS:.0f} s of steps each")
    ready, loading = [], []
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as folder:
        for number in range(PAIRS):
            found = {}
            for warm in (True, False) if number % 2 else (False, True):
                at = Path(folder) / f"{'warm' if warm else 'cold'}-{number}"
                job = under_trainrun(SCRIPT, at, ranks=RANKS, warm=warm, **SETTINGS)
                found[warm] = measure(job, warm=warm)
            ready.append(found[True].settled / found[False].settled)
            loading.append(found[True].loading / found[False].settled)
            print(
                f"  step {found[False].settled * 1000:6.2f} ms without standbys, "
                f"{found[True].settled * 1000:6.2f} ms beside them, "
                f"{found[True].loading * 1000:6.2f} ms while they load",
                flush=True,
            )
    what = "median step, standbys ready / without"
    print(f"{what}: {median(ready):.4f} {must(what, median(ready), LIMIT)}")
    print(f"median step, standbys loading / without: {median(loading):.3f} (said, not bounded)")
    end()


if __name__ == "__main__":
    main()
