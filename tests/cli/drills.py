"""A TrainRun of the script that is broken on request, and drills of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from trainrun_operator.cli.drilling.local_environment import LocalEnvironment

SCRIPT = Path(__file__).parent / "scripts" / "drilled.py"
HABITS = Path(__file__).parent / "scripts" / "habits.py"


def a_file(
    folder: Path,
    mode: str = "",
    *,
    env: dict[str, str] | None = None,
    script: Path = SCRIPT,
    workers: int = 2,
) -> Path:
    """Its YAML; the storage that it names is never made."""
    variables = {"MODE": mode, **(env or {})}
    container = {
        "name": "worker",
        "image": "unused",
        "command": ["python", str(script)],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 4}}
    document: dict[str, Any] = {
        "apiVersion": "trainrun.dev/v1alpha1",
        "kind": "TrainRun",
        "metadata": {"name": "llama"},
        "spec": {
            "workers": {"replicas": workers, "template": template},
            "storage": {"uri": (folder / "storage").as_uri()},
        },
    }
    path = folder / "trainrun.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def a_ground(
    folder: Path,
    mode: str = "",
    *,
    env: dict[str, str] | None = None,
    script: Path = SCRIPT,
    workers: int = 2,
) -> LocalEnvironment:
    """Where single runs of it can be made."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    file = a_file(folder, mode, env=env, script=script, workers=workers)
    return LocalEnvironment(file=file, replicas=None, folder=work)
