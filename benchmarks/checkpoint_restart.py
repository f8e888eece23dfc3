"""kill -9 of a rank between two uploads: what it costs, in steps and in seconds.

Method: `trainrun run` with `uploadEvery`, and a store in a folder. Steps lost: a save every two
seconds, an upload every minute, and a rank is killed at random. Seconds, from the kill to the first
step of the next attempt: the newest checkpoint is on the disks only, or is in the store. Both kinds
take turns. The next kill waits for the upload: the product promises the speed only then.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import Job, machine, run_yaml
from benchmarks.verdict import end, must

SCRIPT = Path(__file__).parent / "scripts" / "save_often.py"
STEP = 0.1
"""Seconds."""
EVERY = 20
"""Steps between two saves."""


def a_job(folder: Path, *, ranks: int, megabytes: int, upload_every: str, **more: str) -> Job:
    folder.mkdir(parents=True)
    text = run_yaml(SCRIPT, folder, ranks=ranks, warm=True)
    text += f"  checkpoint: {{uploadEvery: {upload_every}}}\n"
    (folder / "run.yaml").write_text(text)
    command = [sys.executable, "-m", "trainrun_operator.cli", "run", "run.yaml", "--json"]
    environ = {"MEGABYTES": str(megabytes // ranks), "EVERY": str(EVERY), **more}
    return Job(command, folder, environ)


class Run:
    """A job whose ranks are killed."""

    def __init__(self, job: Job, ranks: int) -> None:
        self.job = job
        self.ranks = ranks
        self.attempt = 1

    def names(self, what: str) -> list[str]:
        return [f"{what}-{self.attempt}-{rank}" for rank in range(self.ranks)]

    def last(self, what: str) -> list[float]:
        return [self.job.at(f"{what}-{rank}") for rank in range(self.ranks)]

    def wait_for_manifest(self, step: int) -> None:
        """Until a checkpoint of this step, or a later one, is in the store."""
        deadline = time.monotonic() + 180
        while True:
            found = (self.job.folder / "storage").glob("bench/checkpoints/*/manifest.json")
            if any(int(path.parent.name[5:14]) >= step for path in found):
                return
            if time.monotonic() > deadline:
                sys.exit(f"step {step} is not stored: see {self.job.folder}/log.txt")
            time.sleep(0.02)

    def kill(self, rank: int) -> tuple[float, int, int]:
        """Seconds from the kill to the first step of the next attempt, steps reached, resumed."""
        pid = self.job.pid(f"pid-{self.attempt}-{rank}")
        reached, killed = int(max(self.last("reached"))), time.time()
        os.kill(pid, signal.SIGKILL)
        self.attempt += 1
        first = self.job.wait_for(*self.names("first"))
        resumed = {int(self.job.at(name)) for name in self.names("resumed")}
        if len(resumed) != 1:
            sys.exit(f"ranks of attempt {self.attempt} began at {sorted(resumed)}")
        return first - killed, reached, resumed.pop()


def steps_lost(
    folder: Path, dice: random.Random, *, ranks: int, megabytes: int, kills: int
) -> None:
    with ExitStack() as stack:
        job = a_job(folder, ranks=ranks, megabytes=megabytes, upload_every="60s")
        stack.callback(job.stop)
        run = Run(job, ranks)
        job.wait_for(*run.names("first"))
        job.wait_for(*run.names("saved"))
        over, took, lost = 0, [], []
        for number in range(kills):
            time.sleep(dice.uniform(1.0, 8.0))
            writes = max(run.last("write")) / STEP
            seconds, reached, resumed = run.kill(dice.randrange(ranks))
            limit = EVERY + writes + 1
            lost.append(reached - resumed)
            took.append(seconds)
            over += lost[-1] > limit
            text = f"{lost[-1]} steps lost of {limit:.0f} allowed, {seconds:.2f} s"
            print(f"  kill {number + 1}: {text}", flush=True)
            if resumed:
                run.wait_for_manifest(resumed)
        bound = must("kills with more steps lost", over, 0)
        print(f"{over} of {kills} kills lost more than one interval and one write {bound}")
        print(f"steps lost: {spread(lost)}; from the kill to the first step: {spread(took)} s")


def one_restart(run: Run, *, stored: bool) -> float:
    """Seconds from a kill to the first step; `stored`: after the upload, else before it."""
    job = run.job
    job.wait_for(*run.names("saved"))
    step = int(job.at(f"saved-{run.attempt}-0"))
    if stored:
        run.wait_for_manifest(step)
    time.sleep(3.5)  # standbys are loaded again
    seconds, _, resumed = run.kill(0)
    if resumed != step:
        sys.exit(f"resumed from step {resumed} instead of {step}")
    run.wait_for_manifest(step)
    return seconds


def restarts(folder: Path, *, ranks: int, megabytes: int, rounds: int) -> None:
    with ExitStack() as stack:
        runs = {}
        for stored, every in ((False, "10m"), (True, "1s")):
            place = folder / f"stored-{stored}"
            job = a_job(place, ranks=ranks, megabytes=megabytes, upload_every=every, ONCE="1")
            stack.callback(job.stop)
            runs[stored] = Run(job, ranks)
        for run in runs.values():
            run.job.wait_for(*run.names("first"))
        took: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for stored, run in runs.items():
                took[stored].append(one_restart(run, stored=stored))
        ratio = statistics.median(took[False]) / statistics.median(took[True])
        bound = must("the ratio of the restarts", ratio, 1.2)
        print(
            f"from the kill to the first step: {spread(took[False])} s with the checkpoint on the "
            f"disks only, {spread(took[True])} s with it in the store, ratio {ratio:.2f} {bound}"
        )


def spread(values: Sequence[float]) -> str:
    """Median, minimum and maximum."""
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    size = {"ranks": given.ranks, "megabytes": given.megabytes}
    print(f"{machine()}; {given.megabytes} MB over {given.ranks} workers")
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as folder:
        if given.rounds:
            restarts(Path(folder, "restarts"), rounds=given.rounds, **size)
        if given.kills:
            dice = random.Random(given.seed)
            steps_lost(Path(folder, "kills"), dice, kills=given.kills, **size)
    end()


if __name__ == "__main__":
    main()
