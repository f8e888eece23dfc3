"""Tasks while everything around them dies: is each committed once, and the result right?

Method: `trainrun run` with four workers and thousands of shards. A task's process gets SIGKILL
every two seconds; a rank, an agent or the driver of the run every twenty; one node goes early on.
Then nothing more is killed. The result must be that of an undisturbed run, no task may start after
its commit, each process that ran a task must have its record, and each death of a rank, an agent or
a node is one incident.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.killed_run import command_of, parent_of
from benchmarks.local_job import machine
from tests.support.task_logs import records_of
from tests.worlds.local.local_runs import Driver, Ended, LocalRuns
from trainrun.tasks.records import Dispatched, Done, Failed, Rebuild

SCRIPT = "shards.py"
WORKERS = 4
TASK_EVERY, OTHER_EVERY = 2.0, 20.0


@dataclass
class Soak:
    """One run, and what was killed in it."""

    runs: LocalRuns
    shards: int
    dice: random.Random
    drivers: list[Driver] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)

    def live(self, seconds: float) -> tuple[Ended, float]:
        """Returns how it has ended, and the seconds that it took."""
        begun = time.monotonic()
        node = f"node-loss rank={WORKERS - 1} step={self.shards // 20}"
        self.drivers.append(self.runs.start("--fault", node))
        self.killed["node"] += 1
        next_other, others = begun + OTHER_EVERY, itertools.cycle(("rank", "driver", "agent"))
        while (now := time.monotonic()) < begun + seconds and self._runs():
            time.sleep(self.dice.uniform(0.5, 1.5) * TASK_EVERY)  # the moment is what is tried
            self._kill("task")
            if now >= next_other:
                next_other += OTHER_EVERY
                self._kill(next(others))
        ended = self.drivers[-1].end()
        return ended, time.monotonic() - begun

    def _runs(self) -> bool:
        return self.drivers[-1].process.poll() is None

    def _kill(self, kind: str) -> None:
        if kind == "driver":
            self.drivers[-1].kill()
            self.drivers.append(self.runs.start())
        elif (there := self._processes(kind)) and self._runs():
            os.kill(self.dice.choice(there), signal.SIGKILL)
        else:
            return
        self.killed[kind] += 1
        print(f"  killed {kind} {self.killed[kind]}", flush=True)

    def _processes(self, kind: str) -> list[int]:
        """A rank is its agent's child, a launcher its rank's, a task its launcher's."""
        ours = self.runs.our_processes()
        there = [pid for pid in ours if "trainrun.agent" in command_of(pid)]
        for below in ("rank", "launcher", "task"):
            if kind == "agent":
                break
            there = [pid for pid in ours if parent_of(pid) in there]
            if kind == below:
                break
        return there

    def wrong(self, ended: Ended) -> list[str]:
        """Every promise that was broken."""
        if ended.code:
            return [f"it ended with {ended.code}: {ended.out[-2000:]}"]
        found = []
        result = int((self.runs.journal / "result").read_text())
        if result != (right := sum(n * n for n in range(self.shards))):
            found.append(f"the result is {result}, and should be {right}")
        found += self._in_log()
        counted = sum(it["counted"] for it in ended.incidents)
        kills = sum(self.killed[kind] for kind in ("rank", "agent", "node"))
        if counted > kills:
            found.append(f"{counted} incidents of {kills} kills")
        return found

    def _in_log(self) -> list[str]:
        found, committed, tries, costs = [], set(), Counter[str](), Counter[str]()
        for record in records_of(self.runs.storage / "tiny"):
            match record:
                case Dispatched():
                    tries[record.key] += 1
                    if record.key in committed:
                        found.append(f"{record.arguments or record.key} runs after its commit")
                case Done():
                    committed.add(record.key)
                case Failed(counted=True):
                    costs[record.reason] += 1
                case Rebuild():
                    found.append(f"{record.key} is rebuilt: {record.why}")
        if len(committed) != self.shards + 1:
            found.append(f"{len(committed)} of {self.shards + 1} tasks are committed")
        noted = sum(len(it.read_text().split()) for it in self.runs.journal.glob("shard-*"))
        if noted > tries.total():
            found.append(f"{noted} tries ran, and {tries.total()} are in the log")
        print(f"  {tries.total()} tries of {len(committed)} tasks; retries: {dict(costs)}")
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=180, help="for which processes are killed")
    parser.add_argument("--pace", type=float, default=0.35, help="seconds that a task sleeps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{machine()}; {options.shards} shards, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainrun-soak-") as folder:
        policy = {"maxFailures": -1, "noProgressLimit": -1, "backoff": {"initial": "0s"}}
        env = {"SHARDS": str(options.shards), "PACE": str(options.pace), "RETRIES": "-1"}
        runs = LocalRuns(
            Path(folder), spec={"failurePolicy": policy}, env=env, script=SCRIPT, replicas=WORKERS
        )
        try:
            soak = Soak(runs, options.shards, random.Random(options.seed))
            ended, took = soak.live(options.seconds)
            wrong = soak.wrong(ended)
        finally:
            runs.close()
    struck = ", ".join(f"{number} {kind}s" for kind, number in soak.killed.items())
    print(f"killed {struck}; ended after {took:.0f} s: {wrong or 'all as promised'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
