"""The story in simulated lives: nothing twice, and nothing lost that an agent could store."""

from __future__ import annotations

import json

import pytest

from tests.simulation.drawn import drawn_life
from tests.simulation.lives import judged, living
from tests.simulation.one_run import a_life, runs, until, worker
from tests.support.levels import examples
from trainrun_operator.api.run.story import Chapter, chapter_from, chapter_object
from trainrun_operator.simulation.simulation import Simulation


def chapters(world: Simulation) -> list[Chapter]:
    """All that is known: what is stored, and what waits for it."""
    stored = {number: json.loads(text) for number, text in world.store.story.items()}
    waiting = {chapter.number: chapter_object(chapter) for chapter in world.status.story}
    for number in stored.keys() & waiting.keys():
        assert stored[number] == waiting[number], f"chapter {number} was told in two ways"
    return [chapter_from(chapter) for _, chapter in sorted({**stored, **waiting}.items())]


def test_every_life_is_told_and_nothing_twice() -> None:
    lives, gaps = examples(300), []
    for number in range(lives):
        life = drawn_life(number)
        world = living(life)
        judged(world)
        told = chapters(world)
        assert not world.store.rewritten, f"life {number} told a chapter in two ways"
        numbers = [chapter.number for chapter in told]
        last = world.status.chapters - (world.status.chapter is not None)
        assert numbers == sorted(set(numbers)), f"life {number}: {numbers}"
        assert not numbers or numbers[-1] == last, f"life {number}: {numbers}"
        gaps += [number] if len(numbers) < last else []
        for chapter in told:
            assert chapter.closed is not None
            whole = (chapter.closed - chapter.begun).total_seconds()
            assert whole >= 0
            assert sum(chapter.spent.values()) == pytest.approx(whole, abs=0.01)
    # A status has room for a few chapters only: where nobody could store them, the oldest goes.
    assert len(gaps) <= 1 + lives // 25, f"gaps in lives {gaps}"


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
