"""Lets a script train in a run of two ranks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.worlds.local.local_runs import Ended, LocalRuns

LONGEST = 800.0
"""Seconds that a run may take: importing a framework takes ten on a busy machine."""


@dataclass(frozen=True)
class Trained:
    """A run that has succeeded."""

    ended: Ended
    out: Path
    """Where the script wrote to."""

    @property
    def weights(self) -> list[str]:
        """Those of each rank, as a digest."""
        return [(self.out / f"weights-{rank}").read_text() for rank in (0, 1)]


def train(
    script: Path, folder: Path, *options: str, workers: int = 2, failures: int = 1, **env: str
) -> Trained:
    """Let it train to its end. `options` are those of `trainrun run`."""
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
    try:
        driver = runs.start(*options)
        driver.process.wait(LONGEST)
        ended = driver.end()
    finally:
        runs.close()
    assert ended.code == 0, ended.out[-3000:] + ended.err
    return Trained(ended, out)
