"""A killed rank, and a notice, under TrainRun, torchrun and Ray Train: how long, how many steps.

Method: the same DDP training of two gloo ranks with steps of 50 ms and a checkpoint every 60 steps,
each trial in a fresh job on this machine. At step 100 rank 1's process gets SIGKILL, or the main
process of its worker (agent, torchrun, raylet) gets SIGTERM, and SIGKILL 15 s later where it is
still there. Figures: seconds without training, from the last step of any rank until every rank has
made a step again; steps lost, which are those done again; what was counted.

Ray is measured where RAY_PYTHON names a Python that has `ray[train]` and torch. Arguments choose
sides by their names: trainrun torchrun ray ray-drained.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.local_job import machine
from benchmarks.peers.sides import GRACE, RayDrainSide, RaySide, Side, TorchrunSide, TrainRunSide

FAULT_AT = 100
LIMIT = 300.0
"""Seconds to wait for a first step: a start of Ray on a busy machine takes minutes."""
ROUNDS = int(os.environ.get("ROUNDS", "3"))


@dataclass(frozen=True)
class Start:
    """One start of one rank."""

    rank: int
    began: dict[str, Any]
    steps: list[dict[str, Any]]


@dataclass(frozen=True)
class Trial:
    """What one fault has cost."""

    seconds: float
    lost: int
    counted: str


def starts(trail: Path) -> list[Start]:
    """All starts of all ranks, oldest first."""
    found = []
    for file in trail.glob("rank-*.jsonl"):
        whole = file.read_text().rpartition("\n")[0]  # the last line may be half written
        lines = [json.loads(line) for line in whole.splitlines()]
        if lines:
            found.append(Start(int(file.name.split("-")[1]), lines[0], lines[1:]))
    return sorted(found, key=lambda start: start.began["time"])


def trial(side: Side, *, kill: bool) -> Trial:
    """Start, wait for the step, strike, wait until all ranks have made a step again."""
    side.start()
    try:
        victim = _wait(side, _at_step)
        if kill:
            os.kill(victim.began["pid"], signal.SIGKILL)
        else:
            side.notice(victim.began)
        struck = time.time()
        _wait(side, lambda all_: _stepped_again(all_, struck), late=None if kill else victim)
        return _judge(side, struck)
    finally:
        side.stop()


def _at_step(all_: list[Start]) -> Start | None:
    done = [s for s in all_ if s.steps and s.steps[-1]["step"] >= FAULT_AT]
    return next((s for s in done if s.rank == 1), None) if len(done) == 2 else None


def _stepped_again(all_: list[Start], struck: float) -> bool:
    return {s.rank for s in all_ if s.began["time"] > struck and s.steps} == {0, 1}


def _wait(side: Side, found: Any, *, late: Start | None = None) -> Any:
    deadline, kill_at = time.monotonic() + LIMIT, time.monotonic() + GRACE
    while time.monotonic() < deadline:
        if answer := found(starts(side.trail)):
            return answer
        side.while_waiting()
        if late is not None and time.monotonic() > kill_at:
            for name in ("parent", "pid"):
                try:
                    os.kill(late.began[name], signal.SIGKILL)
                except ProcessLookupError:
                    pass
            late = None
        time.sleep(0.02)
    raise TimeoutError(f"{side.name}: nothing for {LIMIT:.0f} s\n{side.log()[-3000:]}")


def _judge(side: Side, struck: float) -> Trial:
    all_ = starts(side.trail)
    before = [s for s in all_ if s.began["time"] <= struck]
    after = [s for s in all_ if s.began["time"] > struck and s.steps]
    last = max((s.steps[-1] for s in before), key=lambda step: step["time"])
    first = {rank: min(s.steps[0]["time"] for s in after if s.rank == rank) for rank in (0, 1)}
    resumed = after[0].began["resumed"]
    return Trial(max(first.values()) - last["time"], last["step"] - resumed, side.counted())


def main(names: list[str]) -> None:
    sides: list[type[Side]] = [TrainRunSide, TorchrunSide]
    if "RAY_PYTHON" in os.environ:
        sides += [RaySide, RayDrainSide]
    if names:
        sides = [side for side in sides if side.name in names]
    print(f"{machine()}; {ROUNDS} rounds; seconds without training, steps lost, counted")
    with tempfile.TemporaryDirectory(prefix="trainrun-peers-") as folder:
        for kill in (True, False):
            print("SIGKILL for the process of rank 1:" if kill else "a notice for rank 1's worker:")
            for side in sides:
                if kill and side is RayDrainSide:
                    continue
                _measure(side, Path(folder), kill=kill)


def _measure(side: type[Side], folder: Path, *, kill: bool) -> None:
    trials = []
    for number in range(ROUNDS):
        place = folder / f"{side.name}-{kill}-{number}"
        trials.append(trial(side(place), kill=kill))
        last = trials[-1]
        print(f"  {side.name:11} {last.seconds:6.2f} s  {last.lost:4}  {last.counted}", flush=True)
    seconds, lost = median(t.seconds for t in trials), median(t.lost for t in trials)
    print(f"  {side.name:11} {seconds:6.2f} s  {lost:4.0f}  median", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
