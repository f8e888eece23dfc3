"""Where a drill's runs take place: the user's file, with all that is the run's own replaced.

Layer: cli. Nothing is read from or written to the run's storage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainrun_operator.cli.preparation import Preparation, prepare

if TYPE_CHECKING:
    from pathlib import Path

    from trainrun_operator.worlds.local.faults import Fault

NAME = "drill"
"""Of every run of a drill, whatever the file says."""


def prepare_drill(
    file: Path, *, replicas: int | None, folder: Path, fault: Fault | None
) -> Preparation:
    """The run of this file as a drill in a folder that is there. Raises InvalidSpec."""
    storage = folder / "storage"
    storage.mkdir(parents=True)
    prepared = prepare(
        file,
        replicas=replicas,
        storage=None,
        faults=(str(fault),) if fault is not None else (),
        overrides={
            "metadata.name": NAME,
            "spec.storage": {"uri": storage.as_uri()},
            # One fault is to be survived, and a second incident is a finding.
            "spec.failurePolicy": {"maxFailures": 1, "backoff": {"initial": "0s"}},
            "spec.suspend": False,
            "spec.activeDeadline": None,
            "spec.ttlAfterFinished": None,
        },
    )
    program = replace(prepared.program, env={**prepared.program.env, **_offline(folder)})
    return replace(prepared, program=program)


def _offline(folder: Path) -> dict[str, str]:
    """Environment in which trackers write below a folder and send nothing."""
    trackers = folder / "trackers"
    trackers.mkdir()
    return {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(trackers),
        "MLFLOW_TRACKING_URI": (trackers / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
