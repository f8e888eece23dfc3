"""Sums the results of many short tasks; a few more die with each try. Every try is noted."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from trainrun import tasks

FOLDER = Path(os.environ["FOLDER"])


def note(name: str) -> None:
    with (FOLDER / "ran.txt").open("a") as ran:
        ran.write(f"{name}\n")


@tasks.task(max_retries=-1)
def square(number: int) -> int:
    note(f"square {number}")
    time.sleep(0.02)
    return number * number


@tasks.task(max_retries=2)
def doomed(number: int) -> None:
    note(f"doomed {number}")
    time.sleep(0.05)
    os._exit(number)


@tasks.task
def total(squares: list[int]) -> int:
    return sum(squares)


def main() -> None:
    bad = [doomed.remote(number) for number in range(3)]
    squares = [square.remote(number) for number in range(int(sys.argv[1]))]
    known = dict(zip(map(str, bad + squares), (it.key for it in bad + squares), strict=True))
    (FOLDER / "keys.json").write_text(json.dumps(known))
    print(tasks.get(total.remote(squares)))
    for ref in bad:
        try:
            tasks.get(ref)
        except tasks.WorkerCrashedError as error:
            print(error)


if __name__ == "__main__":
    tasks.run(main, storage=FOLDER)
