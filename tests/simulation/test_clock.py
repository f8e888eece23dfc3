"""Virtual time: what is planned happens in order, and nobody waits for it."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.world.clock import Clock


def all_of(clock: Clock) -> None:
    while clock.step():
        pass


def test_what_waits_a_year_is_done_at_once_and_a_year_later() -> None:
    clock, said = Clock(), []

    async def wait() -> None:
        async with asyncio.timeout(9e9):
            await asyncio.sleep(3e7)
        said.append(asyncio.get_running_loop().time())

    clock.create_task(wait())
    all_of(clock)
    assert said == [3e7]
    assert clock.now == 3e7, "a timeout that was not needed moves no clock"


def test_things_of_the_same_moment_happen_in_the_order_in_which_they_were_planned() -> None:
    clock, said = Clock(), []
    for name in "abc":
        clock.after(1.0, lambda name=name: said.append(name))
    all_of(clock)
    assert said == ["a", "b", "c"]


def test_an_exception_that_nobody_catches_ends_the_life() -> None:
    clock = Clock()

    async def fail() -> None:
        raise ValueError("a bug")

    clock.create_task(fail())
    with pytest.raises(ValueError, match="a bug"):
        all_of(clock)


def test_who_is_cancelled_stops_where_it_waits() -> None:
    clock, said = Clock(), []

    async def wait() -> None:
        try:
            await asyncio.sleep(10.0)
        finally:
            said.append(clock.now)

    task = clock.create_task(wait())
    clock.after(4.0, lambda: task.cancel() and None)
    all_of(clock)
    assert said == [4.0]
