"""The same workloads as a program of tasks: `on_trainrun.py WHAT FOLDER NUMBER`, or by environment.

`seed` writes a log in which so many tasks are done, as if they had run; each prints one line.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from pathlib import Path

from trainrun import tasks

sys.path.insert(0, str(Path(__file__).parent))

from workloads import begun, megabytes, nothing, peak

empty = tasks.task(nothing)
victim = tasks.task(max_retries=-1)(begun)
large = tasks.task(megabytes)

WHAT, FOLDER, NUMBER = (*sys.argv[1:], *os.environ.get("WORKLOAD", "").split())[:3]
COUNT = int(NUMBER)
PER_BATCH = 16
"""Tasks of one batch of a log: as many as end in 0.2 s on two cores."""


def rate() -> None:
    tasks.get([empty.remote(-1 - at) for at in range(20)])
    start = time.monotonic()
    refs = [empty.remote(at) for at in range(COUNT)]
    assert tasks.get(refs) == list(range(COUNT))
    print(f"rate {COUNT / (time.monotonic() - start):.1f}")


def kills() -> None:
    tasks.get(victim.remote(FOLDER, COUNT))


def replay() -> None:
    refs = [empty.remote(at) for at in range(COUNT)]
    assert tasks.get(refs) == list(range(COUNT))
    line = f"replay {time.monotonic() - STARTED:.2f} {peak():.0f}"
    print(line)
    Path(os.environ["ANSWER"]).write_text(line)


def many() -> None:
    """Only the first is waited for."""
    refs = [empty.remote(at) for at in range(COUNT)]
    tasks.get(refs[:100])
    print(f"many {time.monotonic() - STARTED:.2f} {peak():.0f}", flush=True)
    os._exit(0)


def upload() -> None:
    """In turns: a file that a script pickles and uploads; one request from memory; a task
    that returns as much, and one that returns nothing, from its end until `wait` has it."""
    import boto3  # noqa: PLC0415 - for one workload

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    plain = Path(os.environ["ANSWER"]).with_name("plain")
    lines = []
    for at in range(COUNT):
        data, start = megabytes(10, at)
        with plain.open("wb") as file:
            pickle.dump(data, file)
        client.upload_file(str(plain), os.environ["BUCKET"], f"plain-{at}")
        stored = time.time()
        client.put_object(Bucket=os.environ["BUCKET"], Key=f"bare-{at}", Body=data)
        told = f"{stored - start:.4f} {time.time() - stored:.4f}"
        lines.append(f"{told} {_after(10, at):.4f} {_after(0, at):.4f}")
    Path(os.environ["ANSWER"]).write_text("\n".join(lines))


def _after(size: int, at: int) -> float:
    ref, told = large.options(num_returns=2).remote(size, at)
    tasks.wait([ref])
    known = time.time()
    return known - tasks.get(told)


def seed() -> None:
    from seeded import Collected, batches  # noqa: PLC0415 - for one workload

    from trainrun.tasks import function  # noqa: PLC0415
    from trainrun.tasks.local_storage import LocalTaskStorage  # noqa: PLC0415
    from trainrun.tasks.task_storage import to_bytes  # noqa: PLC0415

    collected = Collected()
    function.enter(collected)
    for at in range(COUNT):
        empty.remote(at)
    keep = LocalTaskStorage(Path(FOLDER))
    for position, batch in enumerate(batches(collected.calls, PER_BATCH), start=1):
        assert keep.append(position, to_bytes(batch))
    keep.close()


if __name__ == "__main__":
    STARTED = time.monotonic()
    if WHAT == "seed":
        seed()
    else:
        tasks.run(globals()[WHAT], storage=FOLDER)
