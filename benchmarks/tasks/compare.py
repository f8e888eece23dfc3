"""What tasks cost: a killed task, empty tasks, a replay, memory, a result; beside Ray and Dask.

Method: see docs/benchmarks.md. RAY_PYTHON and DASK_PYTHON name Pythons that have `ray` and
`distributed`; without them TrainRun is measured alone. Arguments choose figures by their names:
kills rate replay memory upload.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from benchmarks.local_job import Job, machine, run_yaml
from tests.support.s3_server import S3Server, running_server
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.task_folder import TaskFolder

HERE = Path(__file__).parent
ROUNDS = int(os.environ.get("ROUNDS", "5"))
KILLS = 5
"""Of each round."""
EMPTY = 500
"""Tasks of one round."""
REPLAYED = 10_000
MANY = 100_000
UPLOADS = 10
SIDES = {
    "trainrun": (sys.executable, "on_trainrun.py"),
    "ray": (os.environ.get("RAY_PYTHON", ""), "on_ray.py"),
    "dask": (os.environ.get("DASK_PYTHON", ""), "on_dask.py"),
}


def command(side: str, what: str, folder: Path, number: int) -> list[str]:
    python, script = SIDES[side]
    return [python, str(HERE / script), what, str(folder), str(number)]


def sides() -> list[str]:
    return [side for side, (python, _) in SIDES.items() if python]


def said(words: list[str], first: str, **environ: str) -> list[float]:
    """The numbers of the line of its output that begins so."""
    ended = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **environ}
    )
    for line in ended.stdout.splitlines():
        if line.startswith(first):
            return [float(word) for word in line.split()[1:]]
    sys.exit(f"{words}:\n{ended.stdout}{ended.stderr}")


def rate(folder: Path) -> None:
    """Empty tasks a second."""
    found: dict[str, list[float]] = {side: [] for side in sides()}
    for at in range(ROUNDS):
        for side, values in found.items():
            place = folder / f"rate-{side}-{at}"
            place.mkdir()
            values.extend(said(command(side, "rate", place, EMPTY), "rate"))
    _tell("empty tasks a second (at least 40, aim 100)", found, "{:.0f}")


def kills(folder: Path) -> None:
    """From SIGKILL of a task's process to the first statement of its next try."""
    found: dict[str, list[float]] = {side: [] for side in sides()}
    for at in range(ROUNDS):
        for side, values in found.items():
            place = folder / f"kills-{side}-{at}"
            place.mkdir()
            values.append(median(_kills(side, place)))
    _tell("kill -9 of a task, until its next try, s (at most 0.3)", found, "{:.2f}")


def _kills(side: str, place: Path) -> list[float]:
    seconds = []
    with (place / "log").open("wb") as log:
        words = command(side, "kills", place, KILLS)
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    for number in range(1, KILLS + 1):
        _, pid = _begun(place, number)
        time.sleep(0.3)  # it sleeps by now
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        again, _ = _begun(place, number + 1)
        seconds.append(again - killed)
    process.wait(60)
    return seconds


def _begun(place: Path, number: int) -> tuple[float, int]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(OSError):
            lines = (place / "begun").read_text().rpartition("\n")[0].splitlines()
            if len(lines) >= number:
                at, pid = lines[number - 1].split()
                return float(at), int(pid)
        time.sleep(0.002)
    sys.exit(f"try {number} did not begin:\n{(place / 'log').read_text()[-3000:]}")


def replay(folder: Path) -> None:
    """A program whose tasks are all done, from a folder and in a run on an S3 server."""
    seeded = folder / "seeded"
    subprocess.run(command("trainrun", "seed", seeded, REPLAYED), check=True)
    walls, cpus = [], []
    for _ in range(ROUNDS):
        used = _used()
        answer = str(folder / "answer")
        walls.append(said(command("trainrun", "replay", seeded, REPLAYED), "replay", ANSWER=answer))
        cpus.append(_used() - used)
    print(
        f"replay of {REPLAYED} done tasks from a folder: {median(w for w, _ in walls):.2f} s "
        f"(at most 2; {median(cpus):.2f} s of CPU, the whole process)",
        flush=True,
    )
    with running_server(folder / "s3-replay") as server:
        os.environ.update(server.environment())
        seconds = [_replayed_on_s3(folder, seeded, server, at) for at in range(ROUNDS)]
    print(f"the same in a run on an S3 server: {median(seconds):.2f} s (at most 5)", flush=True)


def _replayed_on_s3(folder: Path, seeded: Path, server: S3Server, at: int) -> float:
    uri = f"s3://{server.make_bucket(f'replay-{at}')}/runs"
    source = TaskFolder(RunStore(open_store(seeded.parent.as_uri()), seeded.name))
    target = TaskFolder(RunStore(open_store(uri), "bench"))
    for position, batch in enumerate(source.read(0), start=1):
        assert target.append(position, batch)
    answer = _run(folder / f"replay-{at}", uri, server, f"replay - {REPLAYED}")
    return float(answer.split()[1])


def upload(folder: Path) -> None:
    """A result of 10 MB against a plain upload, both on the same S3 server."""
    with running_server(folder / "s3-upload") as server:
        bucket = server.make_bucket("upload")
        work = f"upload - {UPLOADS * ROUNDS}"
        answer = _run(folder / "upload", f"s3://{bucket}/runs", server, work, BUCKET=bucket)
    rows = [[float(word) for word in line.split()] for line in answer.splitlines()]
    script, bare, large, small = (median(column) for column in zip(*rows, strict=True))
    ratio = median(row[2] / row[0] for row in rows)
    print(
        f"a result of 10 MB: {large:.3f} s from the function's end until wait has it, of nothing "
        f"{small:.3f} s; by pickle and boto3's upload_file {script:.3f} s: {ratio:.2f} x (at most "
        f"1.3); a bare PUT from memory {bare:.3f} s",
        flush=True,
    )


def _run(place: Path, uri: str, server: S3Server, work: str, **environ: str) -> str:
    """The answer of a run of the workload."""
    place.mkdir()
    file = place / "run.yaml"
    script = HERE / "on_trainrun.py"
    storage = f"{{uri: '{uri}', endpointURL: '{server.endpoint}'}}"
    file.write_text(run_yaml(script, place, ranks=1, storage=storage))
    keys = {**server.environment(), "XDG_STATE_HOME": str(place / "state")}
    words = [sys.executable, "-m", "trainrun_operator.cli", "run", str(file), "--plain"]
    answer = {"ANSWER": str(place / "answer"), "WORKLOAD": work}
    job = Job(words, place, {**keys, **answer, **environ})
    try:
        job.process.wait(600)
        return (place / "answer").read_text()
    except (OSError, subprocess.TimeoutExpired):
        sys.exit((place / "log.txt").read_text()[-3000:])
    finally:
        job.stop()


def memory(folder: Path) -> None:
    """Of the driver's process: many calls that wait, and as many that are done."""
    waiting = said(command("trainrun", "many", folder / "waiting", MANY), "many")
    seeded = folder / "many"
    subprocess.run(command("trainrun", "seed", seeded, MANY), check=True)
    answer = str(folder / "answer")
    done = said(command("trainrun", "replay", seeded, MANY), "replay", ANSWER=answer)
    shutil.rmtree(seeded)
    print(
        f"memory of the driver with {MANY} tasks: {waiting[1]:.0f} MB while they wait, "
        f"{done[1]:.0f} MB with all done, read in {done[0]:.1f} s (at most 600 MB)",
        flush=True,
    )


def _used() -> float:
    """CPU seconds of children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tell(what: str, found: dict[str, list[float]], form: str) -> None:
    told = ", ".join(
        f"{side} {form.format(median(values))} ({form.format(min(values))} to "
        f"{form.format(max(values))})"
        for side, values in found.items()
    )
    print(f"{what}: {told}", flush=True)


FIGURES: dict[str, Callable[[Path], None]] = {
    "kills": kills,
    "rate": rate,
    "replay": replay,
    "memory": memory,
    "upload": upload,
}


def main(names: list[str]) -> None:
    print(f"{machine()}; {ROUNDS} rounds in turns, medians")
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as folder:
        for name in names or FIGURES:
            FIGURES[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
