"""Lets a script train in a run of two ranks."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.frameworks.common import STEPS
from tests.worlds.local.local_runs import Ended, LocalRuns

LONGEST = 800.0
"""Seconds that a run may take: importing a framework takes ten on a busy machine."""

BOTH_WAYS = pytest.mark.parametrize(
    "workers", [2, 1], ids=["two workers", "two processes of one worker"]
)
"""How the two ranks are placed. Where that makes no difference of its own, two workers are enough:
the run with both faults goes through each of them in one worker, too."""


@dataclass(frozen=True)
class Trained:
    """A run that has succeeded."""

    ended: Ended
    out: Path
    """Where the script wrote to."""
    workers: int
    seconds: float

    @property
    def weights(self) -> list[str]:
        """Those of each rank, as a digest."""
        return [(self.out / f"weights-{rank}").read_text() for rank in (0, 1)]

    @property
    def incidents(self) -> list[tuple[str, int]]:
        """Cause, and the step from which it went on."""
        return [(it["cause"], it["resumedFrom"]["step"]) for it in self.ended.incidents]

    @property
    def reported(self) -> set[int]:
        """The steps of which the store has rank 0's metrics."""
        files = (self.out.parent / "storage" / "tiny" / "metrics").glob("**/*.jsonl")
        lines = (line for path in files for line in path.read_text().splitlines())
        return {json.loads(line)["step"] for line in lines}


def train(
    script: Path,
    folder: Path,
    *options: str,
    workers: int = 2,
    failures: int = 1,
    fails: bool = False,
    **env: str,
) -> Trained:
    """Let it train to its end, or fail. `options` are those of `trainrun run`."""
    out = folder / "out"
    out.mkdir(parents=True)
    runs = LocalRuns(
        folder=folder,
        script=str(script),
        env={"OUT": str(out), **env},
        spec={
            "workers": {"processesPerWorker": 2 // workers},
            "failurePolicy": {"maxFailures": failures},
        },
        replicas=workers,
    )
    begun = time.monotonic()
    try:
        driver = runs.start(*options)
        driver.process.wait(LONGEST)
        ended = driver.end()
    finally:
        runs.close()
    assert (ended.code != 0) == fails, ended.out[-3000:] + ended.err
    return Trained(ended, out, workers, time.monotonic() - begun)


def loading(workers: int, processes: int) -> dict[str, str]:
    """So many loading processes for each rank where both are in one worker, else none."""
    return {"LOADERS": str(processes if workers == 1 else 0)}


def assert_that_it_tells_every_step(run: Trained) -> None:
    """In its status, and in the store."""
    assert run.ended.status["progress"]["step"] == STEPS
    assert run.ended.status["checkpoint"]["step"] == STEPS
    assert run.reported == set(range(1, STEPS + 1))
