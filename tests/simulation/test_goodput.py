"""Goodput against what really happened, which the simulated world knows.

That of random lives is judged with these (test_lives.py).
"""

from __future__ import annotations

import pytest

from tests.simulation.drawn import drawn_life
from tests.simulation.one_run import a_life, runs, until, worker
from tests.simulation.useful_time import (
    Truth,
    is_told,
    lived,
    measured,
    mistake_in_goodput,
    useful,
)
from trainrun_operator.core.run import times

FIRST_TOLD = 31
"""The first of the lives drawn that can be judged."""


@pytest.mark.slow
def test_the_goodput_of_a_run_that_loses_processes_is_exact() -> None:
    world = a_life()
    attempts: dict[int, Truth] = {}
    for attempt in (1, 2, 3):
        until(world, lambda: runs(world, attempt) and world.status.progress.time is not None)  # noqa: B023
        for number, truth in lived(world, world.clock.now + 8.0).items():
            attempts[number] = truth
        world.kill_process(worker(world, 1).agent)
    attempts |= lived(world, 2000)
    assert world.status.is_true("Complete")
    whole = sum(measured(world).values())
    assert measured(world)["useful"] / whole == pytest.approx(
        useful(world, attempts) / whole, abs=0.005
    )


@pytest.mark.slow
def test_a_chapter_that_a_verdict_ends_tells_what_was_known_then() -> None:
    """Its deadline ended the run at step 18; uploads brought step 21, from which it went on when
    the deadline was raised. A chapter is written once, so that part stays rework."""
    assert mistake_in_goodput(drawn_life(4314)) == ""


def test_a_goodput_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    life = drawn_life(FIRST_TOLD)
    assert is_told(life)
    assert mistake_in_goodput(life) == ""
    monkeypatch.setattr(times, "BUCKETS", tuple(b for b in times.BUCKETS if b != "useful"))
    assert "s of useful time\nLife(seed=" in mistake_in_goodput(life)
