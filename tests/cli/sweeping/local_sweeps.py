"""Sweeps of this machine, run by the command line as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.eventually import eventually
from trainrun.checkpoint import RunStore, open_store
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.sweep.records import Record
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.worlds.local.leftovers import kill_all

SCRIPT = Path(__file__).with_name("scripts") / "trial.py"
TIMEOUT = 240.0


@dataclass(frozen=True)
class Ended:
    """What a `trainrun run` has left."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.events[-1]["status"]
        return found


@dataclass
class Sweeps:
    """One sweep: its file, its storage, the journal of its trials."""

    folder: Path
    spec: dict[str, Any] = field(default_factory=dict)
    trial: dict[str, Any] = field(default_factory=dict)
    """Of `spec.run`, beside its workers."""
    env: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ("python", "trial.py", "--lr=$(TRAINRUN_PARAM_LR)")
    does: dict[int, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    """Of the command line."""
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def file(self) -> Path:
        """Write the YAML as it is now."""
        shutil.copy(SCRIPT, self.folder / "trial.py")
        env = {"JOURNAL": str(self.journal), **self.env}
        env["DO"] = json.dumps({str(number): what for number, what in self.does.items()})
        container = {
            "name": "worker",
            "image": "none",
            "command": list(self.command),
            "env": [{"name": name, "value": value} for name, value in env.items()],
        }
        spec = {
            "storage": {"uri": self.storage.as_uri()},
            "objective": {"metric": "loss", "goal": "minimize"},
            "space": [
                {"name": "lr", "float": {"low": 0.001, "high": 0.1, "log": True}},
                {"name": "width", "int": {"low": 1, "high": 9}},
            ],
            "budget": {"trials": 4},
            "maxConcurrent": 2,
            "run": {
                "failurePolicy": {"maxFailures": 0},
                "workers": {"template": {"spec": {"containers": [container]}}},
                **self.trial,
            },
        }
        document = {
            "apiVersion": "trainrun.dev/v1alpha1",
            "kind": "TrainSweep",
            "metadata": {"name": "lr"},
            "spec": {**spec, **self.spec},
        }
        path = self.folder / "sweep.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    @property
    def journal(self) -> Path:
        return self.folder / "journal.txt"

    def begun(self, trial: int | None = None) -> list[list[Any]]:
        """Number, attempt, first step, parameters, arguments, variable of each start."""
        text = self.journal.read_text() if self.journal.exists() else ""
        rows: list[list[Any]] = [json.loads(line) for line in text.splitlines()]
        return [row for row in rows if trial in (None, row[0])]

    def start(self, *options: str) -> subprocess.Popen[str]:
        """`trainrun run --json` in the background."""
        command = [sys.executable, "-m", "trainrun_operator.cli", "run", str(self.file())]
        process = subprocess.Popen(
            [*command, *(options or ("--json",))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "NO_COLOR": "1", **self.environ},
        )
        self.running.append(process)
        return process

    def run(self, *options: str) -> Ended:
        return self.end(self.start(*options))

    def end(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=TIMEOUT)
        return Ended(process.returncode, out, err)

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)

    def wait_for_starts(self, count: int) -> None:
        eventually(lambda: len(self.begun()) >= count, timeout=TIMEOUT, what=f"{count} starts")

    def view(self) -> SweepView:
        """What the log says."""
        return SweepLog(RunStore(open_store(self.storage.as_uri()), "lr")).read_on()

    def records(self, kind: type[Record]) -> list[Any]:
        log = SweepLog(RunStore(open_store(self.storage.as_uri()), "lr"))
        log.read_on()
        found = (log._read(n) for n in range(1, log.view.position + 1))
        return [record for record in found if isinstance(record, kind)]

    def trials(self) -> list[TrialView]:
        return list(self.view().trials.values())

    def states(self) -> list[str]:
        return [trial.state for trial in self.trials()]

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                self.kill(process)
        kill_all(self.storage)
