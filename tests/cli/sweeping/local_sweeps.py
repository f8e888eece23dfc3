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
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.sweep_log import SweepLog
from trainrun.sweep.records import Record, SweepSession
from trainrun.sweep.view import SweepView, TrialView
from trainrun_operator.api.loading import load
from trainrun_operator.api.sweep.spec import TRAINSWEEP
from trainrun_operator.core.sweep.config import immutable_part
from trainrun_operator.worlds.local.worker import kill_all

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
        """Write the YAML as it is now, also where a sweep that runs reads it."""
        if not (self.folder / "trial.py").exists():
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
        return self.save(yaml.safe_dump(document))

    def save(self, text: str) -> Path:
        """Put another text into its place at once."""
        new, path = self.folder / "new.yaml", self.folder / "sweep.yaml"
        new.write_text(text)
        return new.replace(path)

    def write(self, *records: Record) -> Path:
        """These records after what the log holds, at first a session; returns the file."""
        file = self.file()
        self.storage.mkdir(exist_ok=True)
        spec = load(file.read_text(), TRAINSWEEP, source="").spec
        log = SweepLog(RunStore(open_store(self.storage.as_uri()), "lr"))
        first = () if log.read_on().sessions else (SweepSession("me", spec=immutable_part(spec)),)
        for record in (*first, *records):
            assert log.append(record)
        return file

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

    def start(self, *options: str, text: str = "") -> subprocess.Popen[str]:
        """`trainrun run --json` in the background; `text` instead of the YAML as it is now."""
        file = self.save(text) if text else self.file()
        command = [sys.executable, "-m", "trainrun_operator.cli", "run", str(file)]
        with self._errors(len(self.running)).open("w") as errors:
            process = subprocess.Popen(
                [*command, *(options or ("--json",))],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.folder,
                env={**os.environ, "NO_COLOR": "1", **self.environ},
            )
        self.running.append(process)
        return process

    def run(self, *options: str) -> Ended:
        return self.end(self.start(*options))

    def end(self, process: subprocess.Popen[str]) -> Ended:
        out, _ = process.communicate(timeout=TIMEOUT)
        return Ended(process.returncode, out, self.said(process))

    def said(self, process: subprocess.Popen[str]) -> str:
        """What it has told so far, beside its JSON."""
        return self._errors(self.running.index(process)).read_text()

    def wait_for(self, process: subprocess.Popen[str], text: str) -> None:
        eventually(lambda: text in self.said(process), timeout=TIMEOUT, what=f"{text!r} is told")

    def _errors(self, number: int) -> Path:
        return self.folder / f"{number}.err"

    def kill(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=TIMEOUT)

    def wait_for_starts(self, count: int) -> None:
        eventually(lambda: len(self.begun()) >= count, timeout=TIMEOUT, what=f"{count} starts")

    def view(self) -> SweepView:
        """What the log says."""
        return SweepLog(RunStore(open_store(self.storage.as_uri()), "lr")).read_on()

    def records(self, kind: type[Record]) -> list[Any]:
        found: list[Record] = []
        folder = RunStore(open_store(self.storage.as_uri()), "lr")
        SweepLog(folder, on_record=found.append).read_on()
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
