"""What one `report()` and one `should_save()` cost the training loop, under a live agent.

Method: `trainrun run` starts a run of one process on this machine, agent and all. The process makes
2,000 steps of two milliseconds; each call in a step is timed on its own with a monotonic clock.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parent.parent))

import trainrun
from benchmarks.verdict import end, must

STEPS = 2000
PAUSE = 0.002
LIMITS = {"report": 50.0, "should_save": 100.0}
"""Microseconds that a median may reach."""

RUN = """
apiVersion: trainrun.dev/v1alpha1
kind: TrainRun
metadata:
  name: bench-report
spec:
  workers:
    replicas: 1
    template:
      spec:
        containers:
          - name: worker
            image: none
            command: ["{python}", "{script}", "--measure", "{result}"]
  storage:
    uri: file://{folder}/storage
"""


def measure(result: Path) -> None:
    """Run inside the training process: time the calls and write them down."""
    times: dict[str, list[int]] = {name: [] for name in LIMITS}
    for step in range(STEPS):
        time.sleep(PAUSE)
        metrics = {"loss": 1.0 / (step + 1), "lr": 0.1, "tokens": step * 4096}
        began = time.perf_counter_ns()
        trainrun.report(metrics, step=step)
        reported = time.perf_counter_ns()
        trainrun.should_save()
        times["report"].append(reported - began)
        times["should_save"].append(time.perf_counter_ns() - reported)
    result.write_text(json.dumps(times))


def main() -> None:
    """Start the run and print what it measured."""
    with tempfile.TemporaryDirectory() as folder:
        result, file = Path(folder, "result.json"), Path(folder, "run.yaml")
        file.write_text(
            RUN.format(
                python=sys.executable, script=Path(__file__).resolve(), result=result, folder=folder
            )
        )
        command = [sys.executable, "-m", "trainrun_operator.cli", "run", str(file)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if not result.exists():
            sys.exit(f"the run failed:\n{ended.stdout}{ended.stderr}")
        times = json.loads(result.read_text())
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}; {STEPS} calls of each, one step every {PAUSE * 1000:g} ms"
    )
    for name, nanoseconds in times.items():
        micros = [value / 1000 for value in nanoseconds]
        bound = must(f"median of {name}()", median(micros), LIMITS[name], "us")
        print(
            f"{name + '()':15} median {median(micros):6.1f} us   p99 "
            f"{quantiles(micros, n=100)[98]:6.1f} us   {bound}"
        )
    end()


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure(Path(sys.argv[-1]))
    else:
        main()
