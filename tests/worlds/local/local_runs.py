"""Starts the real `trainrun run` on a real file, and reads what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.eventually import eventually
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun_operator.worlds.local.worker import kill_all

SCRIPTS = Path(__file__).parent / "scripts"
TIMEOUT = 240.0
"""Seconds; generous, since two cores are shared by all processes of all tests."""


@dataclass
class LocalRuns:
    """A folder with one TrainRun, to be run as often as a test likes."""

    folder: Path
    spec: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    pod: dict[str, Any] = field(default_factory=dict)
    """What the pod template says beside its container."""
    replicas: int = 2
    script: str = "train.py"
    launcher: tuple[str, ...] = ("python",)
    """What stands before the script."""
    arguments: tuple[str, ...] = ()
    """What stands after it."""
    drivers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Every `trainrun run` that was started."""

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    @property
    def state(self) -> Path:
        return self.storage / ".trainrun" / "tiny"

    def commit_before(
        self, step: int, *, of: int, within: Path | None = None, generation: int = 1
    ) -> dict[str, str]:
        """Variables that let all ranks do `step` only once the first attempt's checkpoint of step
        `of` is committed in the storage, or in that of which `within` is the folder."""
        checkpoint = CheckpointId(attempt=1, step=of)
        run = layout.generation_folder(str((within or self.storage) / "tiny"), generation)
        manifest = Path(run, layout.folder(checkpoint), layout.MANIFEST)
        return {"WAIT_BEFORE": str(step), "WAIT_FOR": str(manifest)}

    def write(self) -> Path:
        env = {"JOURNAL": str(self.journal), **self.env}
        container = {
            "name": "worker",
            "image": "unused",
            "command": [*self.launcher, str(SCRIPTS / self.script), *self.arguments],
            "env": [{"name": name, "value": value} for name, value in env.items()],
        }
        template = {"spec": {**self.pod, "containers": [container]}}
        spec: dict[str, Any] = {
            "workers": {"replicas": self.replicas, "template": template},
            "storage": {"uri": self.storage.as_uri()},
        }
        for key, value in self.spec.items():
            spec[key] = {**spec[key], **value} if isinstance(spec.get(key), dict) else value
        document = {
            "apiVersion": "trainrun.dev/v1alpha1",
            "kind": "TrainRun",
            "metadata": {"name": "tiny"},
            "spec": spec,
        }
        path = self.folder / "trainrun.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def start(
        self, *options: str, json_lines: bool = True, env: dict[str, str] | None = None
    ) -> Driver:
        """`trainrun run` in the background."""
        command = [sys.executable, "-m", "trainrun_operator.cli", "run", str(self.write())]
        command += [*(["--json"] if json_lines else ["--no-color"]), *options]
        self.storage.mkdir(exist_ok=True)
        number = len(list(self.folder.glob("out-*.txt")))
        out = self.folder / f"out-{number}.txt"
        with out.open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stdout=stdout,
                stderr=stderr,
                cwd=self.folder,
                env={**os.environ, **(env or {})},
            )
        self.drivers.append(process)
        return Driver(process, out)

    def close(self) -> None:
        """End whatever is left, drivers first: what one that is stopped has started never ends."""
        for driver in self.drivers:
            driver.kill()
            driver.wait()
        kill_all(self.state / "nodes")

    def run(
        self, *options: str, json_lines: bool = True, env: dict[str, str] | None = None
    ) -> Ended:
        """`trainrun run` to its end."""
        return self.start(*options, json_lines=json_lines, env=env).end()

    def steps(self, rank: int) -> list[tuple[int, int, str]]:
        """(attempt, step, what) of everything this rank did."""
        path = self.journal / f"rank-{rank}.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = (line.split(" ", 2) for line in lines)
        return [(int(attempt), int(step), what) for attempt, step, what in rows]

    def begins(self, rank: int = 0) -> list[int]:
        """The steps at which this rank's attempts began."""
        return [step for _, step, what in self.steps(rank) if what == "begin"]

    def our_processes(self) -> list[int]:
        """Agents and training processes of this run that are alive."""
        mark = f"TRAINRUN_NODE={self.state}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


@dataclass
class Driver:
    """A `trainrun run` that may still be running."""

    process: subprocess.Popen[bytes]
    out: Path

    def events(self) -> list[dict[str, Any]]:
        """The JSON lines so far."""
        lines = self.out.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def has_reached(self, step: int) -> bool:
        """Whether some pass has seen this step."""
        states = (event for event in self.events() if event["event"] == "state")
        return any((state["step"] or 0) >= step for state in states)

    def wait_for_step(self, step: int) -> None:
        eventually(
            lambda: self.has_reached(step) or self.process.poll() is not None,
            timeout=TIMEOUT,
            what=f"step {step}: {self.out.read_text()[-2000:]}",
        )
        assert self.process.poll() is None, self.out.with_suffix(".err").read_text()

    def wait_for_event(self, reason: str) -> dict[str, Any]:
        """The first event of the run's history with this reason."""

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events() if event.get("reason") == reason]

        eventually(found, timeout=TIMEOUT, what=f"event {reason}")
        return found()[0]

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> Ended:
        try:
            code = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running:\n{self.out.read_text()[-4000:]}") from None
        return Ended(code, self.out.read_text(), self.out.with_suffix(".err").read_text())


@dataclass
class Ended:
    """What a `trainrun run` has said and its exit code."""

    code: int
    out: str
    err: str

    @property
    def status(self) -> dict[str, Any]:
        """The final status; the last line."""
        last = json.loads(self.out.splitlines()[-1])
        assert last["event"] == "status"
        assert last["exitCode"] == self.code
        status: dict[str, Any] = last["status"]
        return status

    @property
    def incidents(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status.get("incidents", [])
        return found

    @property
    def history(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.out.splitlines()]
        return [line for line in lines if line["event"] == "history"]

    def condition(self, kind: str) -> dict[str, Any]:
        return next(c for c in self.status["conditions"] if c["type"] == kind)
