"""A training on the GPU of this machine under `trainrun run`; left out where there is none."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.local.local_runs import Ended, LocalRuns
from trainrun_operator.worlds.local.program import gpus_here

SCRIPT = Path(__file__).with_name("train.py")
AT_ONCE = {"maxFailures": 2, "backoff": {"initial": "0s", "max": "0s"}}


@pytest.fixture(autouse=True)
def gpu() -> None:
    if not gpus_here(os.environ):
        pytest.skip("this machine has no GPU")


@dataclass
class Trainings:
    """Runs of `train.py`, each in a folder of its own."""

    folder: Path

    def __post_init__(self) -> None:
        self.made: list[LocalRuns] = []

    def prepare(
        self, *, ranks: int = 1, spec: dict[str, Any] | None = None, **env: str
    ) -> LocalRuns:
        """One that is not started yet; `env`: what the script is told."""
        folder = self.folder / str(len(self.made))
        folder.mkdir()
        told = {
            "RESULT": str(folder / "result"),
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # deterministic algorithms want it
            **({"BACKEND": "gloo"} if ranks > 1 else {}),  # NCCL has no two ranks on one GPU
            **env,
        }
        runs = LocalRuns(
            folder,
            spec={"failurePolicy": AT_ONCE, **(spec or {})},
            env=told,
            replicas=ranks,
            script=str(SCRIPT),
            launcher=(sys.executable,),
        )
        self.made.append(runs)
        return runs

    def run(self, *, ranks: int = 1, spec: dict[str, Any] | None = None, **env: str) -> Ended:
        """One to its end."""
        ended = self.prepare(ranks=ranks, spec=spec, **env).run()
        assert ended.code == 0, ended.out[-4000:] + ended.err[-2000:]
        return ended

    def result(self) -> str:
        """The digest of what the newest one came to."""
        return Path(self.made[-1].folder, "result").read_text()


@pytest.fixture
def trainings(tmp_path: Path) -> Iterator[Trainings]:
    made = Trainings(tmp_path)
    yield made
    for runs in made.made:
        runs.close()
