from __future__ import annotations

import asyncio

import pytest

from tests.kube.waiting import until
from trainrun_operator.runtime.listener import ConnectionLimiter


class Hall:
    """People who hold a turn until they are let go."""

    def __init__(self, turns: ConnectionLimiter) -> None:
        self.turns = turns
        self.inside: list[str] = []
        self.leave = asyncio.Event()

    def comes(self, key: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._visit(key))

    async def _visit(self, key: str) -> None:
        async with self.turns.of(key):
            self.inside.append(key)
            await self.leave.wait()


async def test_who_asks_often_has_his_share_and_leaves_the_rest_to_others() -> None:
    hall = Hall(ConnectionLimiter(at_once=4, share=2))
    tasks = [hall.comes("greedy") for _ in range(10)]
    await until(lambda: len(hall.inside) == 2)
    tasks += [hall.comes(key) for key in ("a", "b", "c")]
    await until(lambda: len(hall.inside) == 4)
    assert sorted(hall.inside) == ["a", "b", "greedy", "greedy"]
    hall.leave.set()
    await asyncio.gather(*tasks)
    assert len(hall.inside) == 13


async def test_who_goes_while_he_waits_leaves_nothing_behind() -> None:
    hall = Hall(ConnectionLimiter(at_once=1, share=1))
    first, second = hall.comes("a"), hall.comes("a")
    await until(lambda: hall.inside)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    hall.leave.set()
    await first
    await hall.comes("a")
    assert hall.turns._shares == {}
