"""How often progress is asked for, by the size of the fleet."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.runtime.states import hold
from trainrun_operator.runtime.agents import Cadence
from trainrun_operator.runtime.reconciler import Wakeup

SPEAKER = replace(hold(), poll=10.0, progress=1.0)
OTHER = replace(hold(), poll=10.0, progress=10.0)


@pytest.mark.parametrize(
    ("agents", "speaker", "other", "passes"),
    [
        (0, 1.0, 1.0, 1.0),
        (4, 1.0, 1.0, 1.0),
        (20, 1.0, 1.0, 1.0),
        (100, 1.0, 5.0, 1.0),
        (200, 1.0, 10.0, 1.0),
        (1_000, 5.0, 10.0, 5.0),
        (2_000, 10.0, 10.0, 10.0),
        (10_000, 10.0, 10.0, 10.0),
        (100_000, 10.0, 10.0, 10.0),
    ],
)
def test_progress_is_asked_for_less_often_as_the_fleet_grows(
    agents: int, speaker: float, other: float, passes: float
) -> None:
    cadence = Cadence(agents=agents)
    assert cadence.paced(SPEAKER).progress == speaker
    assert cadence.paced(OTHER).progress == other
    assert cadence.interval == passes


def test_progress_comes_at_least_with_each_poll() -> None:
    assert Cadence(agents=10_000).paced(replace(SPEAKER, poll=2.0)).progress == 2.0


def test_how_often_progress_is_wanted_is_no_news_that_ends_a_wait() -> None:
    assert Cadence(agents=10_000).paced(SPEAKER).digest == SPEAKER.digest


async def test_progress_alone_leads_to_no_pass_before_its_interval_and_news_do_at_once() -> None:
    wakeup = Wakeup(progress_interval=lambda: 3600.0)
    await wakeup.wait()
    wakeup.soon()
    waiting = asyncio.create_task(wakeup.wait())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    wakeup.now()
    await waiting
