"""Median step and CPU time of a DDP training under `trainrun run`, against torchrun.

Method: the same script, two gloo ranks, steps of more than 20 ms, a report and a should_save() in
each step, a checkpoint every 200 steps. Pairs in turns, each side for at least 20 s of steps. The
CPU time of our side is that of `trainrun run` and of all agents during these steps, uploads
included; that of the training is its ranks' over the same time.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import (
    Job,
    cpu_seconds,
    machine,
    under_torchrun,
    under_trainrun,
)
from benchmarks.verdict import end, must

SCRIPT = Path(__file__).parent / "scripts" / "ddp_steps.py"
RANKS = 2
PAIRS = int(os.environ.get("PAIRS", "15"))
SECONDS = 21
SETTINGS = {"WIDTH": "768", "WARM": "20", "SECONDS": str(SECONDS), "SAVE_EVERY": "200"}
STEP_LIMIT, CPU_LIMIT = 1.02, 0.02


@dataclass(frozen=True)
class Measured:
    """One job."""

    median_step: float
    seconds: float
    training_cpu: float
    our_cpu: float


def measure(job: Job) -> Measured:
    """Let the job make its steps; CPU times between the end of warming up and the last step."""
    try:
        warm = job.wait_for(*(f"warm-0-{rank}" for rank in range(RANKS)))
        ranks = [job.pid(f"pid-0-{rank}") for rank in range(RANKS)]
        ours = [job.process.pid, *agents_of(ranks, job.process.pid)]
        before = [cpu_seconds(pid) for pid in (*ranks, *ours)]
        end = job.wait_for("end-0-0")
        after = [cpu_seconds(pid) for pid in (*ranks, *ours)]
    finally:
        job.stop()
    used = [late - early for early, late in zip(before, after, strict=True)]
    steps = [took for _, took in json.loads((job.marks / "durations-0.json").read_text())]
    return Measured(median(steps), end - warm, sum(used[:RANKS]), sum(used[RANKS:]))


def agents_of(ranks: list[int], driver: int) -> list[int]:
    """The parents of the ranks, other than the driver itself."""
    parents = set()
    for pid in ranks:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        parents.add(int(fields[1]))
    return sorted(parents - {driver})


def main() -> None:
    print(f"{machine()}; {RANKS} gloo ranks, {PAIRS} pairs in turns, {SECONDS} s of steps each")
    ratios, shares, steps = [], [], []
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as folder:
        for number in range(PAIRS):
            at = Path(folder)
            plain = measure(
                under_torchrun(SCRIPT, at / f"torchrun-{number}", ranks=RANKS, **SETTINGS)
            )
            ours = measure(
                under_trainrun(SCRIPT, at / f"trainrun-{number}", ranks=RANKS, **SETTINGS)
            )
            ratios.append(ours.median_step / plain.median_step)
            shares.append(ours.our_cpu / ours.training_cpu)
            steps.append(plain.median_step)
            print(
                f"  step {plain.median_step * 1000:6.2f} ms torchrun, "
                f"{ours.median_step * 1000:6.2f} ms trainrun over {ours.seconds:.0f} s; "
                f"CPU {ours.our_cpu:.2f} s for {ours.training_cpu:.1f} s of training",
                flush=True,
            )
    print(f"median step under torchrun: {median(steps) * 1000:.1f} ms")
    what = "median step, trainrun / torchrun"
    print(f"{what}: {median(ratios):.4f} {must(what, median(ratios), STEP_LIMIT)}")
    what = "CPU of agents and operator / CPU of training"
    print(f"{what}: {median(shares):.4f} {must(what, median(shares), CPU_LIMIT)}")
    end()


if __name__ == "__main__":
    main()
