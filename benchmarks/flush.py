"""SIGKILL of a rank right after `report()` returned on all ranks -> is that step resumed?

Method: `trainrun run` with two workers and their checkpoints on a real S3 server, behind a proxy
that lets each PUT take a second. In each attempt every rank reports a checkpoint; once all have
returned from it one rank kills itself. Several runs at a time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.local_job import Job, machine, under_trainrun
from benchmarks.verdict import end, must
from tests.support.foreign_answers import Exchange, foreign_answers
from tests.support.s3_server import running_server

SCRIPT = Path(__file__).parent / "scripts" / "report_and_die.py"
RANKS = 2
RUNS = 5
"""At a time."""
PUT_SECONDS = 1.0


def lost(job: Job, rounds: int) -> list[int]:
    """Attempts whose step was not resumed, once the run is over."""
    last = [f"resumed-{rounds + 1}-{rank}" for rank in range(RANKS)]
    job.wait_for(*last, timeout=60.0 * rounds)
    begins = {
        attempt: {int(job.at(f"resumed-{attempt + 1}-{rank}")) for rank in range(RANKS)}
        for attempt in range(1, rounds + 1)
    }
    return [attempt for attempt, begin in begins.items() if begin != {attempt}]


def wait_for_put(seconds: float, exchange: Exchange) -> None:
    """What a slow store does."""
    if exchange.method == "PUT":
        time.sleep(seconds)


def kill_and_look(folder: Path, *, rounds: int, runs: int, put_seconds: float) -> list[list[int]]:
    """What each run has lost; `rounds` kills in each."""
    with ExitStack() as stack:
        server = stack.enter_context(running_server(folder / "s3"))
        proxy = stack.enter_context(foreign_answers(server.port))
        proxy.before = partial(wait_for_put, put_seconds)
        keys = server.environment()
        del keys["AWS_ENDPOINT_URL"]
        jobs = []
        for number in range(runs):
            bucket = server.make_bucket(f"bucket-{number}")
            job = under_trainrun(
                SCRIPT,
                folder / f"job-{number}",
                ranks=RANKS,
                storage=f"{{uri: 's3://{bucket}/runs', endpointURL: '{proxy.endpoint}'}}",
                ROUNDS=str(rounds),
                XDG_STATE_HOME=str(folder / f"state-{number}"),
                **keys,
            )
            stack.callback(job.stop)
            jobs.append(job)
        return [lost(job, rounds) for job in jobs]


def main() -> None:
    rounds = int(os.environ.get("ROUNDS", "200"))
    print(f"{machine()}; {rounds} kills over {RUNS} runs, {PUT_SECONDS:.0f} s per PUT")
    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="trainrun-bench-") as folder:
        found = kill_and_look(
            Path(folder), rounds=rounds // RUNS, runs=RUNS, put_seconds=PUT_SECONDS
        )
    missing = sum(map(len, found))
    kills = rounds // RUNS * RUNS
    bound = must("steps resumed", kills - missing, kills, least=True)
    print(
        f"{kills - missing} of {kills} steps that all ranks had reported were resumed {bound}, "
        f"in {time.time() - begun:.0f} s"
    )
    end()


if __name__ == "__main__":
    main()
