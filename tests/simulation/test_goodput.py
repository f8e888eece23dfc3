"""Goodput against what really happened, which the simulated world knows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.simulation.drawn import drawn_life
from tests.simulation.lives import PATIENCE, living
from tests.simulation.one_run import a_life, runs, until, worker
from tests.support.levels import examples
from trainrun_operator.simulation.simulation import Simulation

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
    """Seconds of training that survived, by the claims in the store."""
    total = 0.0
    for number, truth in attempts.items():
        later = [claim for attempt, claim in world.store.claims.items() if attempt > number]
        survived = min((c.step if c is not None else 0 for c in later), default=truth.step)
        total += truth.useful(survived)
    return total


def measured(world: Simulation) -> dict[str, float]:
    assert world.status.goodput is not None
    return world.status.goodput.seconds


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


def test_the_goodput_of_random_lives_is_what_was_made() -> None:
    """But for the step that is under way when an attempt ends, and the delays of the network."""
    for number in range(examples(300)):
        life = drawn_life(number)
        if life.loss or life.duplicate or any(f.kind not in TOLD for f in life.faults):
            continue
        world = living(life)
        attempts = lived(world, PATIENCE)
        if not world.status.is_true("Complete") or not attempts:
            continue
        error = measured(world).get("useful", 0.0) - useful(world, attempts)
        allowed = (world.step_seconds + 2 * life.delay) * len(attempts)
        assert abs(error) <= allowed, f"life {number}: {error:.2f} s of useful time"
