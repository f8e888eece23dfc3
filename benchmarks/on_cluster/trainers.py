"""A gang of three PyTorch ranks on three nodes: DDP over gloo, with marks of its start.

The marks are files in a folder that all nodes share with this machine, with the time of day.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.on_cluster.gang import AT_ONCE_FOR_EVER, PATIENCE
from tests.e2e.support.bed import TORCH_IMAGE, Bed
from tests.e2e.support.cluster_run import ClusterRun
from tests.e2e.support.spreading import on_different_nodes

SCRIPT = Path(__file__).parent.parent / "scripts" / "ddp_steps.py"
RANKS = 3
STAGES = ("line", "import", "group", "step")
"""Of the start of a rank: its first line, torch imported, process group made, first optimizer
step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainers:
    """A TrainRun of it."""

    run: ClusterRun
    folder: Path
    warm: bool
    """With standbys."""

    @classmethod
    def start(cls, bed: Bed, name: str, *, folder: Path, warm: bool) -> Trainers:
        """Apply it; each has a folder of its own."""
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        shutil.copy(SCRIPT, folder)
        standbys = {"warmStart": {"preload": ["torch"]}} if warm else {}
        env = {"MARKS": "/bench", "USE_LIBUV": "0"}  # Debian builds PyTorch without libuv
        run = bed.run(
            name,
            replicas=RANKS,
            gpus=0,
            image=TORCH_IMAGE,
            container={
                "command": ["python3", f"/bench/{SCRIPT.name}"],
                "volumeMounts": [{"name": "bench", "mountPath": "/bench"}],
                "env": [{"name": key, "value": value} for key, value in env.items()],
            },
            pod={
                "volumes": [{"name": "bench", "hostPath": {"path": str(folder)}}],
                **on_different_nodes(name),
            },
            workers=standbys,
            failurePolicy=AT_ONCE_FOR_EVER,
            health={"heartbeatTimeout": "10s"},
        )
        return cls(run=run, folder=folder, warm=warm)

    def stepped(self, attempt: int) -> dict[str, float]:
        """Wait until every rank has made its first optimizer step of this attempt; returns when the
        last one came to each stage."""
        files = {
            stage: [self.folder / f"{stage}-{attempt - 1}-{rank}" for rank in range(RANKS)]
            for stage in STAGES
        }
        deadline = time.monotonic() + PATIENCE
        while not all(file.exists() for file in files["step"]):
            if time.monotonic() > deadline:
                raise SystemExit(f"attempt {attempt} has made no step\n{self.run.story()}")
            time.sleep(0.02)
        return {stage: max(float(f.read_text()) for f in each) for stage, each in files.items()}

    def wait_for_standbys(self) -> None:
        """Wait until each worker has one that is ready, where it is to have one."""
        deadline = time.monotonic() + PATIENCE
        while self.warm and not all(map(_ready, map(self._log, range(RANKS)))):
            if time.monotonic() > deadline:
                raise SystemExit(f"standbys are missing\n{self.run.story()}")
            time.sleep(0.5)

    def pod(self, slot: int) -> str:
        """The name of its pod."""
        return str(self.run.pod(slot)["metadata"]["name"])

    def warm_ranks(self, attempt: int) -> int:
        """How many of them a standby became in the attempt that followed this one."""
        told = (each for each in self.run.incidents if each["attempt"] == attempt)
        return int(next(told, {}).get("warm", 0))

    def _log(self, slot: int) -> str:
        return self.run.log(self.pod(slot))


def _ready(log: str) -> bool:
    """Whether a standby has become ready since the newest start."""
    return log.rfind("standby ready") > max(log.rfind(": warm start"), log.rfind(": cold start"))
