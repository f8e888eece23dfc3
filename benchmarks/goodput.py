"""The goodput race: useful steps of a training that is killed every minute, and torchrun's.

Method: the same DDP training of two gloo ranks with 400 MB of state, saved every ten seconds to the
same S3 server. In each minute one rank gets SIGKILL, at a moment and a rank drawn from a seed, the
same ones for both sides. `trainrun run` has workers.warmStart; under torchrun rank 0 saves by
torch.save and uploads, as its users do, and a restart reads the file from the disk. Fresh jobs of
PART minutes in turns. A step is useful once, and only if what came after goes on from it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import Job, OtherLoad, machine, under_torchrun, under_trainrun
from benchmarks.peers.compare import starts
from benchmarks.race.account import Account, account
from benchmarks.verdict import end, must
from tests.support.s3_server import S3Server, running_server

SCRIPTS = Path(__file__).parent / "race"
SIDES = ("trainrun", "torchrun")
RANKS = 2
MINUTES = int(os.environ.get("MINUTES", "15"))
PART = int(os.environ.get("PART", "5"))
"""Minutes of one job."""
SEED = int(os.environ.get("SEED", "0"))
EARLIEST, LATEST = 20.0, 40.0
"""Seconds of each minute between which its kill strikes: the last one leaves time to recover."""
LIMIT = 1.05
PATIENCE = 300.0
"""Seconds until a rank is there, or has made its first step, after which a side hangs."""


def kills(part: int, minutes: int) -> list[tuple[float, int]]:
    """Seconds since the first step, and which rank, for each minute of a part."""
    dice = random.Random(f"{SEED} {part}")
    drawn = ((dice.uniform(EARLIEST, LATEST), dice.randrange(RANKS)) for _ in range(minutes))
    return [(60.0 * minute + second, rank) for minute, (second, rank) in enumerate(drawn)]


def race(side: str, server: S3Server, folder: Path, *, part: int, minutes: int) -> Account:
    """One job of one side."""
    job = launch(side, server, folder)
    trail = folder / "marks"
    try:
        began = first_step(trail, job)
        load = OtherLoad(job)
        for second, rank in kills(part, minutes):
            time.sleep(max(began + second - time.time(), 0.0))
            kill(rank, trail, job)
        time.sleep(max(began + 60.0 * minutes - time.time(), 0.0) + 0.5)
        others = load.share()
        found = account(starts(trail), seconds=60.0 * minutes)
    finally:
        job.stop()
    tell(side, found, f"  (others used {others:.0%} of the machine)")
    return found


def launch(side: str, server: S3Server, folder: Path) -> Job:
    """Start the job, with a bucket of its own."""
    script = SCRIPTS / f"on_{side}.py"
    bucket = server.make_bucket(folder.name)
    environ = {**server.environment(), "TRAIL": str(folder / "marks"), "BUCKET": bucket}
    environ["XDG_STATE_HOME"] = str(folder / "state")
    if side == "torchrun":
        disk = folder.with_name(f"{folder.name}-disk")
        disk.mkdir()
        environ["STORE"] = str(disk)
        return under_torchrun(script, folder, ranks=RANKS, **environ)
    storage = f"{{uri: 's3://{bucket}/runs'}}"
    return under_trainrun(script, folder, ranks=RANKS, storage=storage, warm=True, **environ)


def first_step(trail: Path, job: Job) -> float:
    """When rank 0 has made it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and job.process.poll() is None:
        for start in starts(trail):
            if start.rank == 0 and start.steps:
                return float(start.steps[0]["time"])
        time.sleep(0.05)
    sys.exit(f"no step in {PATIENCE:.0f} s:\n{tail(job)}")


def kill(rank: int, trail: Path, job: Job) -> None:
    """SIGKILL of the rank's newest process, once there is one."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and job.process.poll() is None:
        newest = [start for start in starts(trail) if start.rank == rank][-1]
        try:
            os.kill(newest.began["pid"], signal.SIGKILL)
        except ProcessLookupError:
            time.sleep(0.05)  # it recovers from the kill before
        else:
            return
    sys.exit(f"no process of rank {rank} in {PATIENCE:.0f} s:\n{tail(job)}")


def tail(job: Job) -> str:
    """The end of what it said."""
    return (job.folder / "log.txt").read_text(errors="replace")[-3000:]


def tell(side: str, of: Account, more: str = "") -> None:
    """A line: useful steps a minute, and the seconds of each minute that went elsewhere."""
    minutes = of.seconds / 60.0
    parts = (of.restart, of.rework, of.stall, of.slower)
    shown = "  ".join(f"{part / minutes:8.1f}" for part in parts)
    print(f"  {side:9} {of.per_minute:8.1f}  {of.usual * 1000:6.0f} ms  {shown}{more}", flush=True)


def main() -> None:
    count = -(-MINUTES // PART)
    print(f"{machine()}; {RANKS} gloo ranks, {MINUTES} minutes and as many kills, seed {SEED}")
    print(
        f"  {'':9} {'useful':>8}  {'a step':>9}  {'restart':>8}  {'rework':>8}  {'stall':>8}  "
        f"{'slower':>8}\n  {'':9} {'/min':>8}  {'':9}  {'seconds of each minute':>38}",
        flush=True,
    )
    sums: dict[str, Account] = {}
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as temporary:
        with running_server(Path(temporary) / "s3") as server:
            for part in range(count):
                minutes = min(PART, MINUTES - part * PART)
                # In turns: whatever the machine does meanwhile, neither bears it alone.
                for side in SIDES if part % 2 == 0 else reversed(SIDES):
                    folder = Path(temporary) / f"{side}-{part}"
                    found = race(side, server, folder, part=part, minutes=minutes)
                    sums[side] = sums[side] + found if side in sums else found
                    disk = folder.with_name(f"{folder.name}-disk")
                    for left in (folder, disk, server.data / folder.name):
                        shutil.rmtree(left, ignore_errors=True)
    print("in all:")
    for side in SIDES:
        tell(side, sums[side])
    ratio = sums["trainrun"].per_minute / sums["torchrun"].per_minute
    what = "useful steps, trainrun / torchrun"
    print(f"{what}: {ratio:.3f} {must(what, ratio, LIMIT, least=True)}")
    end()


if __name__ == "__main__":
    main()
