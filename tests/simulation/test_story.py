"""The story in simulated lives: nothing lost that an agent could store."""

from __future__ import annotations

import pytest

from tests.simulation.drawn import drawn_life
from tests.simulation.lives import judged, living
from tests.simulation.one_run import a_life, runs, until, worker
from tests.simulation.telling import chapters, gap
from tests.support.levels import examples


def test_the_story_of_nearly_every_life_is_whole() -> None:
    """A status has room for a few chapters only: where nobody could store them, the oldest goes.

    That what is told is right is asked of every life (tests/simulation/holding.py).
    """
    lives, gaps = examples(30), []
    for number in range(lives):
        world = living(drawn_life(number))
        assert judged(world) == []
        gaps += [number] if gap(world) else []
    assert len(gaps) <= 1 + lives // 25, f"gaps in lives {gaps}"


@pytest.mark.slow
@pytest.mark.case(
    "operator", "The operator or an agent dies before a chapter of the story is stored"
)
def test_operators_that_crash_and_nodes_that_die_lose_no_chapter() -> None:
    world = a_life()
    for attempt in (1, 2, 3):
        until(world, lambda: runs(world, attempt))  # noqa: B023 - called at once
        world.crash_operator(world.operators[0])
        world.lose_node(worker(world, 0), known_after=1.0)
        until(world, lambda: world.status.attempt > attempt)  # noqa: B023
    world.live(2000)
    assert world.status.is_true("Complete")
    told = chapters(world)
    assert [c.number for c in told] == list(range(1, world.status.chapters + 1))
    assert [(c.attempt, c.incident.get("cause")) for c in told if c.workers] == [
        (1, "NodeLost"),
        (2, "NodeLost"),
        (3, "NodeLost"),
        (4, None),
    ]
    assert sum(world.status.goodput.seconds.values()) == pytest.approx(  # type: ignore[union-attr]
        (told[-1].closed - told[0].begun).total_seconds(),  # type: ignore[operator]
        abs=0.05,
    )
