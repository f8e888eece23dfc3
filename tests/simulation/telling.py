"""The story of a simulated life: what is known of it, and whether it was told right."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainrun_operator.api.run.story import Chapter, chapter_from, chapter_object

if TYPE_CHECKING:
    from tests.simulation.world.simulation import Simulation

ROUNDED = 0.01
"""Seconds by which the parts of a chapter may differ from the whole."""


def chapters(world: Simulation) -> list[Chapter]:
    """All that is known: what is stored, and what waits for it."""
    waiting = {chapter.number: chapter_object(chapter) for chapter in world.status.story}
    return [chapter_from(it) for _, it in sorted({**_stored(world), **waiting}.items())]


def mistakes_in_its_story(world: Simulation) -> list[str]:
    """Told in two ways, twice, without its end, or of other seconds than those that passed."""
    stored = _stored(world)
    found = [
        f"chapter {it.number} was told in two ways"
        for it in world.status.story
        if it.number in stored and stored[it.number] != chapter_object(it)
    ]
    if world.store.rewritten:
        found.append("a chapter was stored in two ways")
    told = chapters(world)
    numbers = [chapter.number for chapter in told]
    last = world.status.chapters - (world.status.chapter is not None)
    if numbers != sorted(set(numbers)) or (numbers and numbers[-1] != last):
        found.append(f"chapters {numbers} are told, and {last} is the last")
    return found + [f"chapter {it.number} does not add up: {it}" for it in told if not _adds_up(it)]


def gap(world: Simulation) -> bool:
    """Whether a chapter is missing: where nobody could store them, the oldest goes."""
    return len(chapters(world)) < world.status.chapters - (world.status.chapter is not None)


def _stored(world: Simulation) -> dict[int, Any]:
    return {number: json.loads(text) for number, text in world.store.story.items()}


def _adds_up(chapter: Chapter) -> bool:
    if chapter.closed is None:
        return False
    whole = (chapter.closed - chapter.begun).total_seconds()
    return whole >= 0 and abs(sum(chapter.spent.values()) - whole) <= ROUNDED
