"""Uploads to a local S3 server, against boto3: speed, CPU, memory, and kills in the middle.

    python benchmarks/checkpoint_write.py [speed] [memory] [kills]

Method: a file goes up in turns as a checkpoint and by boto3's `upload_file`, from one process; the
ratios of the rounds count, since the server works on the same cores. The memory is that of the
agent of a `trainrun run`. For the kills a child uploads checkpoints with a large and a small file,
and gets SIGKILL at random moments; then a checkpoint is chosen and read as after a crash.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent))

import boto3

from benchmarks.local_job import Job, machine, under_trainrun
from tests.support.checkpoints import Bench, materialize, read_directory
from tests.support.s3_server import S3Server, running_server
from trainrun.checkpoint.retention import retain
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.stores.sending import PART
from trainrun.checkpoint.writer import scan, write_part
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import CheckpointDamaged

SCRIPT = Path(__file__).parent / "scripts" / "report_large.py"
SPEED, CPU, MEMORY = 1.0, 1.0, 300.0
"""Musts: times as fast as boto3, times its CPU, MB of the agent."""
KEEP = 2


def measure_speed(folder: Path, *, rounds: int, size: int) -> bool:
    """Print the ratios of wall time and CPU; whether they are as they must be."""
    saved = folder / "saved"
    saved.mkdir()
    with (saved / "model.pt").open("wb") as file:
        for _ in range(0, size, PART):
            file.write(os.urandom(PART))
    client = boto3.client("s3")
    with closing(open_store("s3://bucket")) as store:
        run = RunStore(store, "speed")

        def theirs(_: int) -> None:
            client.upload_file(str(saved / "model.pt"), "bucket", "theirs")

        def ours(step: int) -> None:
            upload(run, saved, attempt=1, step=step)
            store.delete([item.key for item in store.list("speed/checkpoints/")])

        spent = []
        for step in range(rounds + 1):  # the first one connects and loads
            spent.append([_spent(side, step) for side in (theirs, ours)])
    walls = [boto.wall / mine.wall for boto, mine in spent[1:]]
    cpus = [mine.cpu / boto.cpu for boto, mine in spent[1:]]
    seconds = [median(side.wall for side in sides) for sides in zip(*spent[1:], strict=True)]
    print(
        f"{size / 1e9:.2f} GB up: boto3 {seconds[0]:.2f} s, TrainRun {seconds[1]:.2f} s; "
        f"{median(walls):.2f} times as fast ({min(walls):.2f} to {max(walls):.2f}; must be "
        f"{SPEED}), {median(cpus):.2f} times the CPU ({min(cpus):.2f} to {max(cpus):.2f}; must be "
        f"at most {CPU})"
    )
    return median(walls) >= SPEED and median(cpus) <= CPU


class _Spent:
    """Seconds of one call."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.monotonic(), self._used()

    def end(self) -> None:
        self.wall, self.cpu = time.monotonic() - self.wall, self._used() - self.cpu

    @staticmethod
    def _used() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime


def _spent(side: Callable[[int], None], step: int) -> _Spent:
    spent = _Spent()
    side(step)
    spent.end()
    return spent


def upload(run: RunStore, saved: Path, *, attempt: int, step: int) -> None:
    """Upload and commit a checkpoint."""
    files = scan(saved, rank=0)
    write_part(
        run,
        attempt=attempt,
        step=step,
        worker=0,
        workers=1,
        files=files,
        metrics={},
        whole=True,
    )


def measure_memory(folder: Path, server: S3Server, *, size: int) -> bool:
    """Print the most memory of an agent that uploads so many bytes; whether it is little enough."""
    keys = server.environment()
    job = under_trainrun(
        SCRIPT,
        folder / "job",
        ranks=1,
        storage=f"{{uri: 's3://bucket/runs', endpointURL: '{keys.pop('AWS_ENDPOINT_URL')}'}}",
        SIZE=str(size),
        XDG_STATE_HOME=str(folder / "state"),
        **keys,
    )
    most = 0.0
    try:
        while job.process.poll() is None:
            most = max(most, _agent_memory(job))
            time.sleep(0.02)
    finally:
        job.stop()
    stored = sum(item.stat().st_size for item in server.data.rglob("model.pt") if item.is_file())
    print(
        f"agent that uploads {size / 1e9:.1f} GB: at most {most:.0f} MB (RssAnon + RssShmem; must "
        f"be at most {MEMORY:.0f}); {stored / 1e9:.1f} GB arrived"
    )
    return most <= MEMORY and stored == size


def _agent_memory(job: Job) -> float:
    """MB that only this job's agent holds; 0: there is none."""
    mark, found = f"MARKS={job.marks}".encode(), 0
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            if b"trainrun.agent" in command and mark in (entry / "environ").read_bytes():
                status = (entry / "status").read_text()
                found += sum(map(int, re.findall(r"Rss(?:Anon|Shmem):\s+(\d+) kB", status)))
        except OSError:
            continue  # ended meanwhile
    return found * 1024 / 1e6


def content(attempt: int, step: int) -> dict[str, bytes]:
    """The files of a checkpoint: the large one in three parts."""
    dice = random.Random(f"{attempt} {step}")
    return {"large.pt": dice.randbytes(2 * PART + PART // 2), "small.json": dice.randbytes(1000)}


def upload_without_end(folder: Path, *, attempt: int, step: int, said: int) -> None:
    """Commit checkpoints and write their steps to `said`, until SIGKILL."""
    run = RunStore(open_store("s3://bucket"), "digits")
    while True:
        saved = folder / f"saved-{attempt}-{step}"
        saved.mkdir()
        for name, data in content(attempt, step).items():
            (saved / name).write_bytes(data)
        upload(run, saved, attempt=attempt, step=step)
        os.write(said, f"{step}\n".encode())
        shutil.rmtree(saved)
        retain(run, attempt=attempt, keep=KEEP)
        step += 1


def kill(folder: Path, *, attempt: int, step: int, after: float) -> int | None:
    """Kill an uploader `after` seconds; the last step that it knew to be committed."""
    heard, said = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(heard)
            upload_without_end(folder, attempt=attempt, step=step, said=said)
        finally:
            os._exit(1)
    os.close(said)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit(f"the uploader of attempt {attempt} failed")
    with os.fdopen(heard) as lines:
        return max(map(int, lines), default=None)


def measure_kills(folder: Path, server: S3Server, *, kills: int, flips: int, seed: int) -> bool:
    """Print how many restores were bad or lost; whether none was."""
    dice = random.Random(seed)
    flipped = set(dice.sample(range(2, kills + 1), min(flips, kills - 1)))
    bad = lost = inside = seen = 0
    with closing(open_store("s3://bucket")) as store:
        bench = Bench(run=RunStore(store, "digits"), scratch=folder / "scratch")
        bench.scratch.mkdir()
        bench.resolve(1)
        known: CheckpointId | None = None
        for attempt in range(1, kills + 1):
            step = known.step + 1 if known is not None else 0
            said = kill(bench.scratch, attempt=attempt, step=step, after=dice.uniform(0.1, 2.0))
            expected = CheckpointId(attempt=attempt, step=said) if said is not None else known
            resume = bench.resolve(attempt + 1).resume
            if expected is not None and (resume is None or resume < expected):
                lost += 1
            folders = bench.run.folders().values()
            inside += any(not folder.has_manifest for folder in folders)
            if resume is None:
                continue
            known = resume
            good = content(resume.attempt, resume.step)
            found = materialize(bench.run, resume, cache_dir=folder / "cache")
            bad += read_directory(found) != good
            shutil.rmtree(folder / "cache")
            if attempt in flipped:
                seen += _flip_is_seen(bench, server, resume, dice, cache=folder / "cache")
                shutil.rmtree(folder / "cache", ignore_errors=True)
            shutil.rmtree(bench.scratch)  # what the killed one was sending
            bench.scratch.mkdir()
    flips = len(flipped)
    print(
        f"{kills} SIGKILLs, {inside} of them inside an upload, seed {seed}: {bad} bad and {lost} "
        f"lost restores (must be 0); {seen} of {flips} flipped bytes were seen (must be all)"
    )
    return not bad and not lost and seen == flips


def _flip_is_seen(
    bench: Bench, server: S3Server, checkpoint: CheckpointId, dice: random.Random, *, cache: Path
) -> bool:
    """Flip a byte of a file in the store; whether a reader refuses it. Flips it back."""
    folder = server.data / "bucket" / bench.run.key(layout.folder(checkpoint))
    path = dice.choice([folder / layout.file_name(0, name) for name in content(0, 0)])
    with path.open("r+b") as file:
        at = dice.randrange(path.stat().st_size)
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 1 << dice.randrange(8)]))
        file.flush()
        try:
            materialize(bench.run, checkpoint, cache_dir=cache)
        except CheckpointDamaged:
            return True
        finally:
            file.seek(at)
            file.write(old)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=["speed", "memory", "kills", []])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=512 << 20, help="bytes of the compared file")
    parser.add_argument("--large", type=int, default=4_000_000_000, help="bytes for the memory")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    wanted = given.what or ["speed", "memory", "kills"]
    print(machine(), flush=True)
    good = True
    for what in wanted:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainrun-")))
            server = stack.enter_context(running_server(folder / "s3"))
            server.make_bucket("bucket")
            os.environ.update(server.environment())
            if what == "speed":
                good &= measure_speed(folder, rounds=given.rounds, size=given.size)
            elif what == "memory":
                good &= measure_memory(folder, server, size=given.large)
            else:
                good &= measure_kills(
                    folder, server, kills=given.kills, flips=given.flips, seed=given.seed
                )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
