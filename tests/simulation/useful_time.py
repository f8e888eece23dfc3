"""How much of a life was training that survived: what the run's goodput says against the truth,
which the simulated world knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.lives import PATIENCE, Life, living
from tests.simulation.telling import chapters

if TYPE_CHECKING:
    from tests.simulation.world.simulation import Simulation

TOLD = frozenset(
    {"kill", "oom", "exception", "texts", "policy", "refuse", "no-room", "misconfigure", "template"}
)
"""Faults after which everybody lives who knows what was done."""


@dataclass
class Truth:
    """When one attempt's gang made its first and its newest step, and which."""

    begin: int
    first: float
    last: float
    step: int

    def useful(self, survived: int) -> float:
        """Seconds from its first step on that went into steps which survived."""
        done, kept = self.step - self.begin, min(survived - self.begin, self.step - self.begin)
        return (self.last - self.first) * max(kept - 1, 0) / (done - 1) if done > 1 else 0.0


def lived(world: Simulation, seconds: float) -> dict[int, Truth]:
    """Let it live, and note the steps of each attempt at the moment when they are done."""
    attempts: dict[int, Truth] = {}
    while world.clock.now < seconds and not world.over() and world.clock.step():
        for there in world.workers.values():
            training = there.agent.training
            if training is None or training.first_step is None or training.last_step is None:
                continue
            number, step = there.agent.attempt, max(training.steps.values())
            now = attempts.setdefault(
                number, Truth(training.begin, training.first_step, training.last_step, step)
            )
            now.first = min(now.first, training.first_step)
            now.last = max(now.last, training.last_step)
            now.step = max(now.step, step)
    return attempts


def useful(world: Simulation, attempts: dict[int, Truth]) -> float:
    """Seconds of training that survived, by the claims in the store; of an attempt that a verdict
    ended before the run went on, as far as was known then."""
    total, failed = 0.0, {it.attempt: it for it in chapters(world) if it.end == "Failed"}
    for number, truth in attempts.items():
        later = [claim for attempt, claim in world.store.claims.items() if attempt > number]
        survived = min((c.step if c is not None else 0 for c in later), default=truth.step)
        known = failed[number].survived if number in failed else None
        total += truth.useful(survived if known is None else min(survived, known))
    return total


def measured(world: Simulation) -> dict[str, float]:
    """Seconds by bucket, as the run's status says."""
    assert world.status.goodput is not None
    return world.status.goodput.seconds


def is_told(life: Life) -> bool:
    """Whether everybody lives who knows what was done, and what they say arrives."""
    return not (life.loss or life.duplicate or any(f.kind not in TOLD for f in life.faults))


def mistake_in_goodput(life: Life) -> str:
    """By how much the run's useful time is off, but for the step that is under way when an attempt
    ends, and the delays of the network; "" where it is right, or nobody can tell."""
    if not is_told(life):
        return ""
    world = living(life)
    attempts = lived(world, PATIENCE)
    if not world.status.is_true("Complete") or not attempts:
        return ""
    error = measured(world).get("useful", 0.0) - useful(world, attempts)
    allowed = (world.step_seconds + 2 * life.delay) * len(attempts)
    return f"{error:.2f} s of useful time\n{life!r}" if abs(error) > allowed else ""
