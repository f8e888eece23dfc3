"""A gang of trivial workers whose spawns are timed.

A process makes a file as the first thing it does, in a folder that all nodes share with this
machine: one clock for everything, and nothing is asked for or started while it is measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.support.bed import Bed
from tests.e2e.support.cluster_run import ClusterRun

SPAWN = ": > /bench/line-$TRAINRUN_ATTEMPT-$RANK; exec sleep 1000000"
PATIENCE = 180.0
"""Seconds after which a round is given up."""
PAUSE = 2.0
"""Seconds between two rounds."""
AT_ONCE_FOR_EVER = {
    "maxFailures": -1,
    "noProgressLimit": -1,
    "backoff": {"initial": "0s", "max": "0s"},
}
"""The failure policy of what is broken on purpose: without the second, five kills end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A TrainRun of workers that sleep."""

    run: ClusterRun
    folder: Path
    replicas: int
    applied: float
    """When it was applied, in seconds since 1970."""

    @classmethod
    def start(
        cls, bed: Bed, name: str, *, folder: Path, replicas: int, heartbeat: str = "10s"
    ) -> Gang:
        """Apply it; gangs have a folder each."""
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        mounts = [{"name": "bench", "mountPath": "/bench"}]
        applied = time.time()
        run = bed.run(
            name,
            replicas=replicas,
            gpus=0,
            container={"command": ["sh", "-c", SPAWN], "volumeMounts": mounts},
            pod={
                "volumes": [{"name": "bench", "hostPath": {"path": str(folder)}}],
                "terminationGracePeriodSeconds": 30,
                # As even as may be, so that a node holds its share.
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": {"trainrun.dev/run": name}},
                    }
                ],
            },
            failurePolicy=AT_ONCE_FOR_EVER,
            health={"heartbeatTimeout": heartbeat},
        )
        return cls(run=run, folder=folder, replicas=replicas, applied=applied)

    def attempt(self) -> int:
        """The newest attempt of which every rank has been spawned."""
        return max(
            (int(path.name.split("-")[1]) for path in self.folder.glob("line-*-0")), default=0
        )

    def spawned(self, attempt: int) -> float:
        """Wait for every rank of this attempt; returns when the last one was spawned."""
        files = [self.folder / f"line-{attempt}-{rank}" for rank in range(self.replicas)]
        deadline = time.monotonic() + PATIENCE
        while not all(path.exists() for path in files):
            if time.monotonic() > deadline:
                raise SystemExit(f"attempt {attempt} was not spawned\n{self.run.story()}")
            time.sleep(0.02)
        return max(path.stat().st_mtime for path in files)

    def settle(self, seconds: float = PAUSE) -> None:
        """Let the start be over before something is broken."""
        time.sleep(seconds)
