"""What the benchmarks share: jobs under `trainrun run` and under torchrun, and their marks.

A script under measurement writes marks: one file per event with the time of day as its content, so
that events of several processes and of the benchmark itself can be set against each other.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")

RUN = """
apiVersion: trainrun.dev/v1alpha1
kind: TrainRun
metadata:
  name: bench
spec:
  workers:
    replicas: {ranks}{more}
    template:
      spec:
        containers:
          - name: worker
            image: none
            command: ["{python}", "{script}"]
  storage: {storage}
  failurePolicy:
    maxFailures: {failures}
"""


class Job:
    """A running job in a folder of its own, in a process group of its own."""

    def __init__(self, command: list[str], folder: Path, environ: Mapping[str, str]) -> None:
        self.marks = folder / "marks"
        self.marks.mkdir(parents=True)
        self._log = (folder / "log.txt").open("wb")
        self.process = subprocess.Popen(
            command,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environ, "MARKS": str(self.marks)},
            start_new_session=True,
        )
        self.folder = folder

    def wait_for(self, *names: str, timeout: float = 180.0) -> float:
        """The time of the last of these marks, once all are there."""
        deadline = time.monotonic() + timeout
        while not all((self.marks / name).exists() for name in names):
            if time.monotonic() > deadline or self.process.poll() is not None:
                log = (self.folder / "log.txt").read_text()[-3000:]
                sys.exit(f"no {names} in {self.folder}:\n{log}")
            time.sleep(0.005)
        return max(self.at(name) for name in names)

    def wait_for_line(self, text: str, count: int, *, timeout: float = 180.0) -> list[str]:
        """Wait until so many lines of its log have this text; the lines."""
        deadline = time.monotonic() + timeout
        while True:
            log = (self.folder / "log.txt").read_text()
            found = [line for line in log.splitlines() if text in line]
            if len(found) >= count:
                return found
            if time.monotonic() > deadline or self.process.poll() is not None:
                sys.exit(f"{len(found)} of {count} lines with {text!r}:\n{log[-3000:]}")
            time.sleep(0.05)

    def at(self, name: str) -> float:
        """The time of a mark."""
        return float((self.marks / name).read_text())

    def pid(self, name: str) -> int:
        """The process that a rank wrote down."""
        return int((self.marks / name).read_text())

    def stop(self) -> None:
        """End it at once, whatever it does."""
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(number)
                time.sleep(0.2)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._log.close()


def run_yaml(
    script: Path,
    folder: Path,
    *,
    ranks: int,
    storage: str = "",
    max_failures: int = -1,
    warm: bool = False,
) -> str:
    """A TrainRun of the script; `storage`: in YAML, else in `folder`; `warm`: with standbys."""
    return RUN.format(
        ranks=ranks,
        more="\n    warmStart: {preload: [torch]}" if warm else "",
        python=sys.executable,
        script=script,
        storage=storage or f"{{uri: 'file://{folder}/storage'}}",
        failures=max_failures,
    )


def under_trainrun(
    script: Path,
    folder: Path,
    *,
    ranks: int,
    storage: str = "",
    warm: bool = False,
    **environ: str,
) -> Job:
    """Start the script as a TrainRun of `ranks` workers; `storage`: in YAML, else in `folder`;
    `warm`: with standbys."""
    folder.mkdir(parents=True)
    file = folder / "run.yaml"
    file.write_text(run_yaml(script, folder, ranks=ranks, storage=storage, warm=warm))
    # As JSON also what agents say is in the log: when standbys are ready.
    shown = "--json" if warm else "--plain"
    command = [sys.executable, "-m", "trainrun_operator.cli", "run", str(file), shown]
    return Job(command, folder, environ)


def under_torchrun(script: Path, folder: Path, *, ranks: int, **environ: str) -> Job:
    """Start the script under torchrun; TORCH_DISABLE_... is what makes it recover at all."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--max-restarts", "100", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    environ |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    return Job([*command, str(script)], folder, environ)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def used_by(job: Job) -> dict[int, float]:
    """Seconds of CPU so far of each living process of a job, by its number."""
    mark, used = f"MARKS={job.marks}".encode(), {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                used[int(entry.name)] = cpu_seconds(int(entry.name))
        except OSError:
            continue  # ended meanwhile
    return used


class OtherLoad:
    """How much of the machine others use while a job is measured."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._busy, self._all = machine_cpu()
        self._ours = used_by(job)

    def share(self) -> float:
        """Part of all CPU time since then that went to processes that are not the job's."""
        busy, total = machine_cpu()
        # What was killed meanwhile is no longer there to be asked; it used next to nothing.
        ours = sum(used - self._ours.get(pid, 0.0) for pid, used in used_by(self._job).items())
        return max(0.0, busy - self._busy - ours) / (total - self._all)


def machine_cpu() -> tuple[float, float]:
    """Seconds that all cores were busy, and all seconds of all cores, since boot."""
    line = Path("/proc/stat").read_text().splitlines()[0]
    ticks = [int(field) for field in line.split()[1:9]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) / TICKS, sum(ticks) / TICKS


def machine() -> str:
    """The machine in a few words."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    load = os.getloadavg()[0]
    return (
        f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"load {load:.1f} at the start"
    )
