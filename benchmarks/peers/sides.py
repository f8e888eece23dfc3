"""How each side starts the training, and how a worker of it is told that it will be taken away."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.local_job import run_yaml

HERE = Path(__file__).parent
GRACE = 15
"""Seconds from a notice until the worker's main process is killed."""
MAX_FAILURES = 3


class Side(ABC):
    """One training in a folder of its own."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder, self.trail, self.store = folder, folder / "trail", folder / "store"
        for path in (self.trail, self.store):
            path.mkdir(parents=True)
        self._started: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def start(self) -> None:
        """Start the training of two ranks."""

    @abstractmethod
    def counted(self) -> str:
        """What was counted against which budget."""

    def notice(self, rank: dict[str, Any]) -> None:
        """SIGTERM for the main process of this rank's worker, as from a kubelet."""
        os.kill(rank["parent"], signal.SIGTERM)

    def while_waiting(self) -> None:  # noqa: B027 - most have nothing to do
        """What somebody beside the framework has to do meanwhile."""

    def log(self) -> str:
        """All output so far."""
        return (self.folder / "log.txt").read_text(errors="replace")

    def launch(self, command: list[str], **environ: str) -> subprocess.Popen[bytes]:
        """Start one process of it."""
        own = {"TRAIL": str(self.trail), "STORE": str(self.store), "OMP_NUM_THREADS": "1"}
        with (self.folder / "log.txt").open("ab") as log:
            started = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", **own, **environ},
                start_new_session=True,
            )
        self._started.append(started)
        return started

    def stop(self) -> None:
        """End all that was started, by what its environment says."""
        mark = f"TRAIL={self.trail}".encode()
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            for entry in Path("/proc").iterdir():
                try:
                    if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                        os.kill(int(entry.name), number)
                except OSError:
                    continue  # ended meanwhile
            time.sleep(0.5)
        for started in self._started:
            started.wait()


class TrainRunSide(Side):
    """`trainrun run`: two workers."""

    name = "trainrun"

    def start(self) -> None:
        file = self.folder / "run.yaml"
        script = HERE / "on_trainrun.py"
        file.write_text(run_yaml(script, self.folder, ranks=2, max_failures=MAX_FAILURES))
        self.launch([sys.executable, "-m", "trainrun_operator.cli", "run", str(file), "--plain"])

    def counted(self) -> str:
        command = [sys.executable, "-m", "trainrun_operator.cli", "status", "--json"]
        shown = subprocess.run(
            [*command, str(self.folder / "run.yaml")], capture_output=True, check=True
        )
        status = json.loads(shown.stdout)
        status = status.get("status", status)
        causes = [incident["cause"] for incident in status.get("incidents", [])]
        return f"failures {status['failures']['text']}: {', '.join(causes)}"


class TorchrunSide(Side):
    """Two torchruns of one rank each, as in two pods; one that ends is started again at once."""

    name = "torchrun"

    def start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._agents = [self._agent() for _ in range(2)]
        self.again = 0

    def _agent(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
        command += ["--nproc-per-node", "1", "--max-restarts", str(MAX_FAILURES)]
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self._port}"]
        command += ["--rdzv-id", "peer", "--local-addr", "127.0.0.1"]
        # Without this variable torchrun does not recover on one machine.
        return self.launch(
            [*command, str(HERE / "on_torchrun.py")], TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"
        )

    def while_waiting(self) -> None:
        for number, agent in enumerate(self._agents):
            if agent.poll() is not None:
                self._agents[number] = self._agent()
                self.again += 1

    def counted(self) -> str:
        newest = [trail.read_text().splitlines()[0] for trail in self.trail.iterdir()]
        most = max(json.loads(line)["restarts"] for line in newest)
        return f"restarts {most}/{MAX_FAILURES} per torchrun; {self.again} torchruns started again"


class RaySide(Side):
    """Ray Train V2; its Python is named by RAY_PYTHON."""

    name = "ray"

    def start(self) -> None:
        # Unix socket paths have an end: Ray's own files cannot lie below a long folder.
        self.launch([os.environ["RAY_PYTHON"], str(HERE / "on_ray.py")], RAY_TMPDIR="/tmp")

    def counted(self) -> str:
        found = re.findall(r"  (Source|Error count): (.*)", self.log())
        return ", ".join(f"{name.lower()}: {text}" for name, text in found)


class RayDrainSide(RaySide):
    """The same, where the notice reaches Ray by its own call, as from its autoscaler."""

    name = "ray-drained"

    def notice(self, rank: dict[str, Any]) -> None:
        ray = Path(os.environ["RAY_PYTHON"]).with_name("ray")
        command = [str(ray), "drain-node", "--address", (self.store / "address").read_text()]
        command += ["--node-id", str(rank["node"]), "--reason-message", "spot"]
        command += ["--reason", "DRAIN_NODE_REASON_PREEMPTION"]
        command += ["--deadline-remaining-seconds", str(GRACE)]
        subprocess.run(command, check=True, capture_output=True)
