"""What kopf's thread tells the loop of the runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from trainrun_operator.cluster.runs import SerialQueue


async def test_many_large_objects_at_once_do_not_keep_the_loop_from_its_lease() -> None:
    """An operator lost its Lease while somebody created hundreds of objects of a megabyte."""
    taken: list[str] = []
    rounds_seen: list[int] = []
    rounds = 0

    def act(kind: str, raw: Mapping[str, Any]) -> None:
        time.sleep(0.005)  # as long as it takes to read one
        taken.append(str(raw["number"]))
        rounds_seen.append(rounds)

    told = SerialQueue(asyncio.get_running_loop(), act)

    def tell() -> None:
        for number in range(50):
            told.put("ADDED", {"number": number})

    telling = asyncio.get_running_loop().run_in_executor(None, tell)
    time.sleep(0.05)  # the loop is busy, and all of them wait
    while len(taken) < 50:
        rounds += 1
        await asyncio.sleep(0)
    await telling
    assert taken == [str(number) for number in range(50)]
    assert len(set(rounds_seen)) == 50, "other tasks of the loop had their turn between any two"
