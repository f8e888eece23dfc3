"""kill -9 of the last of the ranks -> first optimizer step of all, against torchrun.

Method: the same script under `trainrun run` and under torchrun, in turns, each in a fresh job. Once
it trains its last rank gets SIGKILL. Stages are the latest of all ranks: first line of the new
processes, torch imported, process group made, first optimizer step. `torchrun` and `cold` import
torch anew; `warm` is TrainRun with workers.warmStart, killed once its standbys are ready. A round
in which other processes took much of the machine is made again.

DEVICE=cuda BACKEND=nccl RANKS=1: the same on a GPU; NCCL wants one for each rank.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import (
    Job,
    OtherLoad,
    machine,
    under_torchrun,
    under_trainrun,
)
from benchmarks.verdict import end, must

SCRIPT = Path(__file__).parent / "scripts" / "ddp_steps.py"
RANKS = int(os.environ.get("RANKS", "2"))
KILLED = RANKS - 1
DEVICE, BACKEND = os.environ.get("DEVICE", "cpu"), os.environ.get("BACKEND", "gloo")
ROUNDS = int(os.environ.get("ROUNDS", "7"))
STAGES = ("line", "import", "group", "step")
LIMITS = {"cold": 0.75, "warm": 0.12}
MOST_OTHER_LOAD, MOST_TRIES = 0.15, 4
"""Part of the CPU time that others may take in a round (the kernel alone takes a tenth on a machine
that is otherwise idle); tries before a round is kept all the same."""

Launch = Callable[..., Job]


def warm_trainrun(script: Path, folder: Path, *, ranks: int) -> Job:
    """With standbys."""
    return under_trainrun(script, folder, ranks=ranks, warm=True)


def undisturbed(launch: Launch, folder: Path) -> list[float]:
    """The first round that others leave alone, else the last one tried."""
    took: list[float] = []
    for number in range(MOST_TRIES):
        took, others = recovery(launch, folder.with_name(f"{folder.name}-{number}"))
        if others <= MOST_OTHER_LOAD:
            return took
        print(f"  (others used {others:.0%} of the machine: again)", flush=True)
    return took


def recovery(launch: Launch, folder: Path) -> tuple[list[float], float]:
    """Seconds from the kill to each stage, and the part of the machine that others used."""
    job = launch(SCRIPT, folder, ranks=RANKS)
    try:
        job.wait_for(*(f"step-0-{rank}" for rank in range(RANKS)))
        if launch is warm_trainrun:
            told = job.wait_for_line("standby ready", RANKS)
            size = told[-1].partition("standby ")[2].rstrip('"}')
            print(f"  (standby {size})", flush=True)
        time.sleep(1.5)
        load = OtherLoad(job)
        killed = time.time()
        os.kill(job.pid(f"pid-0-{KILLED}"), signal.SIGKILL)
        job.wait_for(*(f"step-1-{rank}" for rank in range(RANKS)))
        others = load.share()
        stages = [max(job.at(f"{stage}-1-{rank}") for rank in range(RANKS)) for stage in STAGES]
        return [moment - killed for moment in stages], others
    finally:
        job.stop()


def where() -> str:
    """The device that the ranks train on."""
    if DEVICE == "cpu":
        return DEVICE
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    ranks = f"{RANKS} {BACKEND} ranks on {where()}"
    print(f"{machine()}; {ranks}, {ROUNDS} rounds in turns; seconds since the kill")
    sides: dict[str, Launch] = {
        "warm": warm_trainrun,
        "cold": under_trainrun,
        "torchrun": under_torchrun,
    }
    took: dict[str, list[list[float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as folder:
        for number in range(ROUNDS):
            for name, launch in sides.items():
                took[name].append(undisturbed(launch, Path(folder) / f"{name}-{number}"))
                shown = "  ".join(f"{value:6.2f}" for value in took[name][-1])
                print(f"  {name:9} {shown}", flush=True)
    print(f"  {'':18} {'  '.join(f'{stage:>6}' for stage in STAGES)}")
    for name, rows in took.items():
        for kind, pick in (("median", median), ("fastest", min), ("slowest", max)):
            shown = (f"{pick(moments):6.2f}" for moments in zip(*rows, strict=True))
            print(f"  {name:9} {kind:8} {'  '.join(shown)}")
    theirs = median(row[-1] for row in took["torchrun"])
    for name, limit in LIMITS.items():
        ratio = median(row[-1] for row in took[name]) / theirs
        what = f"first optimizer step, {name} / torchrun"
        print(f"{what}: {ratio:.3f} {must(what, ratio, limit)}")
    end()


if __name__ == "__main__":
    main()
