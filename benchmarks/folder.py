"""What it costs to keep the folder of a script that nobody changed; whether a resume is ever bad.

Method: `trainrun run` with a store in a folder. Kills: in the middle of a save, at a random moment,
for each form of saving; afterwards the script reads what it is given, byte by byte. Loop: steps of
20 ms of CPU, each printed, a save every 100; with patterns and folder, and without, in turns; the
median step. Uploads: numbered saves of before, and new ones; bytes in the store, and those that the
agent has read (rchar of /proc/PID/io).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import Job, machine, used_by
from benchmarks.step_overhead import agents_of
from benchmarks.verdict import end, must
from tests.worlds.local.test_folder import FORMS as FORMS_OF_TESTS

SCRIPT = Path(__file__).parent / "scripts" / "own_saves.py"
SETTLE = "1s"
FORMS = {
    **FORMS_OF_TESTS,
    "place": {"newest": "ckpt.bin", "resumeArgs": ["--resume", "{newest}"]},
}
"""Those of the tests, but that the file is named which is overwritten."""


def a_job(folder: Path, form: str, *, kept: bool = True, **environ: str) -> Job:
    """The script in a folder of its own; `kept`: with its output read and its folder stored."""
    folder.mkdir(parents=True, exist_ok=True)
    container = {"name": "worker", "image": "none", "command": [sys.executable, str(SCRIPT)]}
    spec: dict[str, object] = {
        "workers": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
        "storage": {"uri": (folder / "storage").as_uri()},
        "failurePolicy": {"maxFailures": -1, "backoff": {"initial": "0s"}},
    }
    if kept:
        spec["checkpoint"] = {"folder": {"path": "out", "settle": SETTLE, **FORMS[form]}}
        spec["progress"] = {"output": "Auto"}
    head = {"apiVersion": "trainrun.dev/v1alpha1", "kind": "TrainRun", "metadata": {"name": "b"}}
    (folder / "run.yaml").write_text(json.dumps({**head, "spec": spec}))
    command = [sys.executable, "-m", "trainrun_operator.cli", "run", "run.yaml", "--plain"]
    return Job(command, folder, {"FORM": form, **environ})


def kills(folder: Path, form: str, dice: random.Random, *, count: int, slow: float) -> None:
    """Kill it in mid-write, so often."""
    job = a_job(folder, form, SLOW=str(slow))
    bad = lost = 0
    try:
        for attempt in range(1, count + 1):
            job.wait_for(f"saved-{attempt}")
            whole = int(job.at(f"saved-{attempt}"))
            while int(job.at(f"saving-{attempt}")) == whole:
                time.sleep(0.01)
            time.sleep(dice.uniform(0.0, slow))
            done = int(job.at(f"saved-{attempt}"))
            os.kill(job.pid(f"pid-{attempt}"), signal.SIGKILL)
            job.wait_for(f"pid-{attempt + 1}")
            while not (job.marks / f"resumed-{attempt + 1}").exists():
                if (job.marks / f"torn-{attempt + 1}").exists():
                    sys.exit(f"{form}: a bad resume, see {job.folder}")
                time.sleep(0.01)
            resumed = int(job.at(f"resumed-{attempt + 1}"))
            bad += resumed > max(whole, done) + 1
            lost += resumed < whole
    finally:
        job.stop()
    print(f"{form}: {count} kills, bad resumes {bad} {must(f'{form}: bad resumes', bad, 0)},")
    print(f"  saves lost that were whole for settle: {lost} {must(f'{form}: lost', lost, 0)}")


def loop(folder: Path, *, pairs: int, steps: int) -> None:
    """The median step with and without, and what all of our processes use meanwhile."""
    ratios, shares = [], []
    for number in range(pairs):
        took, cpu = {}, {}
        for kept in (True, False):
            given = {"STEPS": str(steps), "STEP": "0.02", "SLOW": "0", "PAUSE": "0"}
            job = a_job(folder / f"{number}-{kept}", "folders", kept=kept, MEGABYTES="10", **given)
            try:
                job.wait_for("end", timeout=600)
                took[kept], cpu[kept] = job.at("median"), sum(used_by(job).values()) - job.at("cpu")
                training = job.at("cpu")
            finally:
                job.stop()
        ratios.append(took[True] / took[False])
        shares.append((cpu[True] - cpu[False]) / training)
        print(
            f"  step {took[True] * 1000:.2f} ms with, {took[False] * 1000:.2f} ms without; beside "
            f"{training:.1f} s of CPU for the training {cpu[True]:.2f} and {cpu[False]:.2f} s"
        )
    what = "median step with patterns and folder / without"
    print(f"{what}: {median(ratios):.4f} {must(what, median(ratios), 1.02)}")
    print(f"CPU for patterns and folder / CPU of the training: {median(shares):.3f}")


def uploads(folder: Path, *, gigabytes: float, megabytes: float) -> None:
    """A new save beside many old ones, which are sparse files."""
    old = folder / "out"
    for number in range(1, 21):
        entry = old / f"checkpoint-{number}" / "model.bin"
        entry.parent.mkdir(parents=True)
        with entry.open("wb") as file:
            file.truncate(int(gigabytes * 1e9 / 20))
        (entry.parent / "state.json").write_text("{}")
    # Numbered behind the old ones: 100, 200.
    given = {"STEPS": "200", "SLOW": "3", "PAUSE": "6", "MEGABYTES": str(megabytes / 2)}
    job = a_job(folder, "folders", **given)
    try:
        job.wait_for("pid-1")
        [agent] = agents_of([job.pid("pid-1")], job.process.pid)
        before = read_so_far(agent)
        job.wait_for("saved-1")
        while job.at("saved-1") != 200:
            time.sleep(0.1)
        time.sleep(5)  # until it is stored
        read = read_so_far(agent) - before
    finally:
        job.stop()
    found = (folder / "storage" / "b" / "checkpoints").rglob("*")
    stored = sum(path.stat().st_size for path in found if path.is_file())
    uploaded = stored / 1e6 / megabytes
    bound = must("uploaded / new", uploaded, 1.1)
    print(
        f"{gigabytes:g} GB of saves and {megabytes:g} MB new: uploaded / new {uploaded:.2f} {bound}"
    )
    share = read / 1e6 / megabytes
    print(f"  read by the agent / new: {share:.2f} {must('read / new', share, 1.2)}")


def read_so_far(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--slow", type=float, default=1.0, help="seconds that a save takes")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument("--megabytes", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as folder:
        if given.megabytes:
            size = {"gigabytes": given.gigabytes, "megabytes": given.megabytes}
            uploads(Path(folder, "uploads"), **size)
        if given.kills:
            dice = random.Random(given.seed)
            for form in FORMS:
                kills(Path(folder, form), form, dice, count=given.kills, slow=given.slow)
        if given.pairs:
            loop(Path(folder, "loop"), pairs=given.pairs, steps=given.steps)
    end()


if __name__ == "__main__":
    main()
