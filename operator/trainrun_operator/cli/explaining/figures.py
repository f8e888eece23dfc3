"""Numbers about a life: step time, time between failures, what a checkpoint costs.

Layer: cli; pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainrun_operator.api.run.story import Chapter
    from trainrun_operator.cli.explaining.life import Life

LEAST_STALL = 1.0
"""Seconds that a save is taken to cost at least: what it costs beside the wait is not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingFigures:
    """How often the run saves, what that costs, and how often would be best. Seconds."""

    step: float
    """Of training between two steps, on average, waits for uploads left out."""
    interval: float
    """Of training between two checkpoints."""
    between_failures: float
    """Of training between two incidents."""
    stall: float
    """That training waits for one save: measured, and at least LEAST_STALL."""
    best: float
    """The best interval: sqrt(2 * stall * between_failures)."""

    def loss(self, interval: float) -> float:
        """The part of the time that saving so often costs, in waits and in steps done again."""
        part = self.stall / (self.stall + interval) + interval / 2 / self.between_failures
        return min(part, 1.0)  # the formula is for failures that are rarer than saves

    @property
    def improves(self) -> bool:
        """The best interval is better than the present one; where failures come faster than it,
        what is best is not known."""
        rare = self.best < self.between_failures
        return rare and self.loss(self.best) < self.loss(self.interval)


def worked(chapter: Chapter) -> float:
    """Seconds in which an attempt made steps."""
    return chapter.spent.get("useful", 0.0) + chapter.spent.get("rework", 0.0)


def steps_of(chapter: Chapter) -> int:
    """Steps that an attempt made."""
    base = chapter.resumed_from.step if chapter.resumed_from is not None else 0
    return max((chapter.reached or base) - base, 0)


def lost_steps(chapter: Chapter) -> int:
    """Steps of an attempt that were done again, or would have to be."""
    if chapter.reached is None or chapter.closed is None:
        return 0
    base = chapter.resumed_from.step if chapter.resumed_from is not None else 0
    return max(chapter.reached - max(chapter.survived or 0, base), 0)


def step_seconds(life: Life) -> float:
    """Of all attempts; 0 where no two steps of an attempt are known."""
    made = sum(max(steps_of(chapter) - 1, 0) for chapter in life.ran)
    return sum(worked(chapter) for chapter in life.ran) / made if made else 0.0


def saving(life: Life) -> SavingFigures | None:
    """None where too little is known: no incident, no steps, or no two checkpoints."""
    step, failures = step_seconds(life), len([c for c in life.incidents if c.workers])
    every = _steps_between_saves(life)
    if not step or not failures or not every:
        return None
    trained = sum(worked(chapter) for chapter in life.ran)
    interval = every * step
    saves = max(trained / interval, 1.0)
    stalled = sum(chapter.spent.get("checkpoint_stall", 0.0) for chapter in life.ran)
    stall, between = max(stalled / saves, LEAST_STALL), trained / failures
    # T* = sqrt(2 * d * M): Young 1974. Daly's terms of higher order matter for d > M/50 only.
    best = max(math.sqrt(2 * stall * between), step)
    return SavingFigures(
        step=step, interval=interval, between_failures=between, stall=stall, best=best
    )


def _steps_between_saves(life: Life) -> float:
    """The usual distance of two checkpoints of one attempt; else twice the usual loss."""
    good = sorted((c.id.attempt, c.id.step) for c in life.checkpoints if c.state == "good")
    apart = sorted(b[1] - a[1] for a, b in pairwise(good) if a[0] == b[0] and b[1] > a[1])
    if apart:
        return float(apart[len(apart) // 2])
    lost = [lost_steps(chapter) for chapter in life.incidents if chapter.reached is not None]
    return 2.0 * sum(lost) / len(lost) if lost else 0.0
