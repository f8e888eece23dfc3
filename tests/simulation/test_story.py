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

NOBODY_STORES = ("store-away", "start-trouble")
"""Faults under which chapters may wait for an agent until the status has no room for the oldest."""


def chapters(world: Simulation) -> list[Chapter]:
    """All that is known: what is stored, and what waits for it."""
    stored = {number: json.loads(text) for number, text in world.store.story.items()}
    waiting = {chapter.number: chapter_object(chapter) for chapter in world.status.story}
    for number in stored.keys() & waiting.keys():
        assert stored[number] == waiting[number], f"chapter {number} was told in two ways"
    return [chapter_from(chapter) for _, chapter in sorted({**stored, **waiting}.items())]


@pytest.mark.usefixtures("unmeasured")
def test_every_life_is_told_without_a_gap_and_nothing_twice() -> None:
    for number in range(examples(300)):
        life = drawn_life(number)
        world = living(life)
        judged(world)
        told = chapters(world)
        assert not world.store.rewritten, f"life {number} told a chapter in two ways"
        if not any(fault.kind in NOBODY_STORES for fault in life.faults):
            numbers = [chapter.number for chapter in told]
            last = world.status.chapters - (world.status.chapter is not None)
            assert numbers == list(range(1, last + 1)), f"life {number}: {numbers}"
        for chapter in told:
            assert chapter.closed is not None
            whole = (chapter.closed - chapter.begun).total_seconds()
            assert sum(chapter.spent.values()) == pytest.approx(whole, abs=0.01)


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
