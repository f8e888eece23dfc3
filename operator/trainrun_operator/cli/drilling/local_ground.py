"""A drill on this machine: the user's file, with all that is the run's own replaced.

Layer: cli. Nothing is read from or written to the run's storage.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainrun_operator.cli.drilling.ground import offline, survives
from trainrun_operator.cli.drilling.own_folder import elsewhere
from trainrun_operator.cli.drilling.scenarios import OF_SCRIPT, OURS, FaultName
from trainrun_operator.cli.drilling.store import DrillStore
from trainrun_operator.cli.drilling.trial import Trial
from trainrun_operator.cli.preparation import Preparation, prepare

if TYPE_CHECKING:
    from trainrun_operator.cli.drilling.course import Course
    from trainrun_operator.cli.drilling.scenarios import Scenario

NAME = "drill"
"""Of every run of a drill, whatever the file says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGround:
    """See `Ground`."""

    file: Path
    replicas: int | None
    folder: Path
    """For the storage of one run at a time."""
    notes: tuple[str, ...] = ()

    def names(self, *, everything: bool) -> tuple[FaultName, ...]:
        """See `Ground`."""
        return (*OF_SCRIPT, *OURS) if everything else OF_SCRIPT

    def possible(self, scenario: Scenario, _control: Course, *, until: int) -> Scenario:  # noqa: ARG002
        """See `Ground`: everything is."""
        return scenario

    def try_run(
        self,
        *,
        scenario: Scenario | None,
        until: int | None,
        seconds: float,
        share: float = math.inf,
    ) -> Course:
        """See `Ground`."""
        folder = self.folder / "run"
        folder.mkdir()
        try:
            prepared = prepare_drill(
                self.file, replicas=self.replicas, folder=folder, scenario=scenario
            )
            trial = Trial(prepared, DrillStore(folder), scenario, until, share)
            return trial.run(seconds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def local_ground(file: Path, *, replicas: int | None) -> Iterator[LocalGround]:
    """In a temporary folder, which goes in the end."""
    with tempfile.TemporaryDirectory(prefix="trainrun-drill-", ignore_cleanup_errors=True) as made:
        yield LocalGround(file=file, replicas=replicas, folder=Path(made))


def prepare_drill(
    file: Path, *, replicas: int | None, folder: Path, scenario: Scenario | None
) -> Preparation:
    """The run of this file as a drill in a folder that is there. Raises InvalidSpec."""
    store = DrillStore(folder)
    store.make()
    faults = scenario.faults if scenario is not None else ()
    overrides: dict[str, object] = {
        "metadata.name": NAME,
        "spec.storage": {"uri": store.link.as_uri()},
        "spec.failurePolicy": survives(len(faults)),
        "spec.suspend": False,
        "spec.activeDeadline": None,
        "spec.ttlAfterFinished": None,
    }
    if scenario is not None and scenario.watched:
        overrides["spec.health.progressTimeout"] = f"{scenario.watched:.0f}s"
    prepared = prepare(
        file,
        replicas=replicas,
        storage=None,
        faults=tuple(map(str, faults)),
        overrides=overrides,
    )
    program = elsewhere(prepared.program, folder / "work")
    program = replace(program, env={**program.env, **_offline(folder)})
    return replace(prepared, program=program)


def _offline(folder: Path) -> dict[str, str]:
    """Environment in which trackers write below a folder and send nothing."""
    trackers = folder / "trackers"
    trackers.mkdir()
    return {**offline((trackers / "mlruns").as_uri()), "WANDB_DIR": str(trackers)}
