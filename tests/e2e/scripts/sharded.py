"""A program of tasks: blocks of eight shards each, whose numbers are added up.

What it prints in the end is the same whatever happens: the sum of all numbers below 8 x blocks.
"""

from __future__ import annotations

import argparse
import time

from trainrun import tasks

SHARDS = 8
"""Of a block."""


@tasks.task
def shard(number: int) -> dict[str, object]:
    time.sleep(0.3)
    return {"number": number, "ballast": bytes(100_000)}  # too large for the log


@tasks.task
def add(parts: list[dict[str, int]]) -> int:
    return sum(part["number"] for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int)
    blocks = parser.parse_args().blocks
    total = 0
    for block in range(blocks):
        parts = [shard.remote(block * SHARDS + number) for number in range(SHARDS)]
        total += tasks.get(add.remote(parts))
    print(f"total {total}", flush=True)


if __name__ == "__main__":
    tasks.run(main)
