"""Tasks over shards, each of which notes its tries; every seventh dies with its first."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from trainrun import tasks

JOURNAL = Path(os.environ["JOURNAL"])
SHARDS = int(os.environ.get("SHARDS", "30"))
PACE = float(os.environ.get("PACE", "0.05"))


@tasks.task(max_retries=int(os.environ.get("RETRIES", "3")))
def square(shard: int) -> int:
    JOURNAL.mkdir(exist_ok=True)
    with (JOURNAL / f"shard-{shard}").open("a") as tries:
        first = tries.tell() == 0
        tries.write(f"{os.getpid()}\n")
    time.sleep(PACE)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # whatever the ranks do with it
    if first and shard % 7 == 6:
        os._exit(0)
    return shard * shard


@tasks.task
def total(squares: list[int]) -> int:
    return sum(squares)


def main() -> None:
    (JOURNAL / "result").write_text(
        str(tasks.get(total.remote([*map(square.remote, range(SHARDS))])))
    )


if __name__ == "__main__":
    tasks.run(main)
