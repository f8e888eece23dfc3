"""`make demo`: one training twice, undisturbed and disturbed, with the same weights at the end.

The second run loses rank 2 to SIGKILL and then gets a preemption notice for the worker of rank 1.
Both times it resumes from the newest good checkpoint. Everything here goes through the `trainrun`
command, as a user would do it.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILE = "examples/ddp_digits/trainrun.yaml"
COMMAND = os.path.relpath(Path(sys.executable).with_name("trainrun"), ROOT)
FAULTS = ["kill rank=2 step=34", "preempt rank=1 step=65 grace=20s"]


def main() -> int:
    # Ctrl-C is for the run that is on: it saves and stops, and its exit code ends the demo.
    signal.signal(signal.SIGINT, lambda *_: None)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="trainrun-demo-"))
    quiet, disturbed = folder / "undisturbed", folder / "disturbed"
    say("1. Handwritten digits, four DDP ranks, undisturbed.")
    run(quiet)
    say("2. The same, but rank 2 is killed and the worker of rank 1 gets a preemption notice.")
    run(disturbed, *FAULTS)
    first, second = final_metrics(quiet), final_metrics(disturbed)
    say("3. Do both end with the same weights?")
    for name, metrics in (("undisturbed", first), ("disturbed", second)):
        accuracy = metrics["accuracy"]
        print(f"   {name:12} test accuracy {accuracy:.4f}   weights sha256 {metrics['weights']}")
    same = first["weights"] == second["weights"]
    print(f"   {'Yes, bit for bit.' if same else 'NO: the resume was not exact.'}")
    print(
        f"\n   {time.monotonic() - began:.0f} s in all. The checkpoints are in {folder}; look at:"
    )
    for words in (("checkpoints", disturbed.as_uri(), "--verify"), ("status", disturbed.as_uri())):
        print(f"   {shlex.join(trainrun(*words))}")
    return 0 if same else 1


def run(storage: Path, *faults: str) -> None:
    storage.mkdir()
    options = [word for fault in faults for word in ("--fault", fault)]
    command = trainrun("run", FILE, "--storage", str(storage), *options)
    print(f"   $ {shlex.join(command)}\n", flush=True)
    code = subprocess.run(command, check=False, cwd=ROOT).returncode
    if code:
        sys.exit(f"the run ended with exit code {code}")


def final_metrics(storage: Path) -> dict[str, Any]:
    command = trainrun("status", storage.as_uri(), "--json")
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT).stdout
    metrics: dict[str, Any] = json.loads(answer)["status"]["progress"]["metrics"]
    return metrics


def trainrun(*words: str) -> list[str]:
    """The command, from the root of the checkout."""
    return [COMMAND, *words]


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
