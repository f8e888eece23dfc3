"""Makes eight results that are objects of their own, waits for a word, and takes them all."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from trainrun import tasks

JOURNAL = Path(os.environ["JOURNAL"])
PARTS = 8


@tasks.task
def part(number: int) -> bytes:
    JOURNAL.mkdir(exist_ok=True)
    with (JOURNAL / f"part-{number}").open("a") as tries:
        tries.write(".")
    return bytes([number]) * 100_000


@tasks.task
def digest(parts: list[bytes]) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def main() -> None:
    parts = [part.remote(number) for number in range(PARTS)]
    tasks.wait(parts, num_returns=PARTS)
    (JOURNAL / "made").touch()
    while not (JOURNAL / "go").exists():
        time.sleep(0.05)
    (JOURNAL / "result").write_text(tasks.get(digest.remote(parts)))


if __name__ == "__main__":
    tasks.run(main)
