"""A TrainSweep in a real API server, whose log lies in a folder of this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from click.testing import CliRunner, Result

from tests.cli.sweeping.local_sweeps import Sweeps
from tests.support.trainruns import CRD
from trainrun_operator.cli.commands import trainrun

if TYPE_CHECKING:
    from tests.support.trainruns import TrainRuns
    from trainrun.sweep.records import Record

SWEEPS_CRD = CRD.with_name("trainrun.dev_trainsweeps.yaml")


def call(*words: str | Path | int) -> Result:
    return CliRunner().invoke(trainrun, [*map(str, words)])


@dataclass(frozen=True)
class ClusterSweeps:
    """The TrainSweep `lr` in a namespace of its own; no operator runs there."""

    sweeps: Sweeps
    objects: TrainRuns

    @property
    def where(self) -> str:
        return f"{self.objects.namespace}/lr"

    @property
    def folder(self) -> Path:
        return self.sweeps.storage / "lr"

    def install(self) -> None:
        self.objects.install(SWEEPS_CRD, name="trainsweeps.trainrun.dev")

    def create(self, *records: Record) -> None:
        """The object, and this log of it; none: nothing was begun."""
        file = self.sweeps.write(*records) if records else self.sweeps.file()
        self.objects.create_sweep(yaml.safe_load(file.read_text()))

    def says(self, **status: Any) -> None:
        """The operator's words."""
        patch = json.dumps({"status": {"holder": "trainrun", **status}})
        options = ("--subresource=status", "--type=merge", f"--patch={patch}")
        self.objects.kubectl("patch", "trainsweep", "lr", *options)

    def raw(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.objects.kubectl(
                "get", "trainsweep", "lr", "--output=json", "--show-managed-fields"
            )
        )
        return found

    def lists(self) -> tuple[object, object, object]:
        spec = self.raw()["spec"]
        return spec.get("suspend"), spec.get("pausedTrials"), spec.get("stoppedTrials")
