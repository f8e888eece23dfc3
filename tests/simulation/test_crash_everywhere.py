"""The operator dies after any of its effects: the run's story stays the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache

import pytest

from tests.simulation.world.simulation import Simulation
from tests.simulation.world.worker import SimWorker
from tests.support.builders import a_config
from tests.support.levels import some

SAVE_EVERY = 8
STRIKE_AT = 11
"""Something happens once the checkpoint of step 8 is committed and step 11 is done: far enough from
the next checkpoint that the resume point does not hang on milliseconds."""

Strike = Callable[[Simulation, SimWorker], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What must not depend on crashes of the operator."""

    phase: str
    failures: int
    preemptions: int
    incidents: tuple[tuple[int, str], ...]
    """Attempt and cause."""
    resumed: tuple[tuple[int, int | None, int | None], ...]
    """Attempt, and the attempt and step that it resumed from."""


def kill(world: Simulation, worker: SimWorker) -> None:
    world.kill_process(worker.agent)


def lose_node(world: Simulation, worker: SimWorker) -> None:
    world.lose_node(worker, known_after=2.0)


def darken(world: Simulation, worker: SimWorker) -> None:
    world.darken(worker, suspected_after=8.0)


def preempt(world: Simulation, worker: SimWorker) -> None:
    world.preempt(worker, grace=40.0, known=True)


def kill_without_store(world: Simulation, worker: SimWorker) -> None:
    world.store_away(25.0)
    world.kill_process(worker.agent)


def suspend(world: Simulation, worker: SimWorker) -> None:
    world.suspend(60.0)


SCENARIOS: dict[str, Strike] = {
    "kill": kill,
    "node loss": lose_node,
    "dark node": darken,
    "preempt with save": preempt,
    "store away": kill_without_store,
    "suspend and resume": suspend,
}
EFFECTS = {
    "kill": 23,
    "node loss": 26,
    "dark node": 29,
    "preempt with save": 27,
    "store away": 25,
    "suspend and resume": 35,
}
"""So many does the operator have in each."""
CRASHES = [(scenario, number) for scenario in SCENARIOS for number in range(EFFECTS[scenario])]
SAVING = ("preempt with save", "suspend and resume")
"""Here the training saves on request: at which step depends on how fast the operator asks."""


def live(scenario: str, *, crash_after: int | None) -> tuple[Simulation, Story]:
    world = Simulation(
        config=a_config(
            name="run",
            uid="uid",
            replicas=3,
            template_hash="t1",
            checkpoints_uri="file:///storage/run/checkpoints",
            limits={"failures": 3, "preemptions": 3},
            heartbeat_timeout=timedelta(seconds=15),
        ),
        rng=random.Random(7),
        save_every=SAVE_EVERY,
    )
    world.operators[0].crash_after = crash_after
    strike_when_due(world, SCENARIOS[scenario])
    world.live(3600)
    return world, story_of(world, exact=scenario not in SAVING)


def strike_when_due(world: Simulation, strike: Strike) -> None:
    """Strike slot 1 when its training is where the scenario wants it."""
    for worker in world.workers.values():
        training = worker.agent.training
        saved = worker.agent.staging.committed is not None
        if worker.slot == 1 and training is not None and training.step == STRIKE_AT and saved:
            strike(world, worker)
            return
    world.clock.after(0.1, lambda: strike_when_due(world, strike))


def story_of(world: Simulation, *, exact: bool) -> Story:
    status = world.status
    points = [(r.attempt, r.resume_point) for r in world.judge.records.values()]
    return Story(
        phase=status.phase,
        failures=status.failures.counted,
        preemptions=status.failures.preemptions,
        incidents=tuple((i.attempt, i.cause) for i in status.incidents),
        resumed=tuple(
            (attempt, p.attempt if p else None, p.step if p and exact else None)
            for attempt, p in points
        ),
    )


@cache
def undisturbed(scenario: str) -> Story:
    return live(scenario, crash_after=None)[1]


@pytest.mark.parametrize(
    ("scenario", "failures", "preemptions", "cause"),
    [
        ("kill", 1, 0, "AppError"),
        ("node loss", 0, 1, "NodeLost"),
        ("dark node", 0, 1, "NodeLost"),
        ("preempt with save", 0, 1, "Preempted"),
        ("store away", 1, 0, "AppError"),
        ("suspend and resume", 0, 0, None),
    ],
)
def test_the_story_without_crashes(
    scenario: str, failures: int, preemptions: int, cause: str | None
) -> None:
    exact = scenario not in SAVING
    assert undisturbed(scenario) == Story(
        phase="Succeeded",
        failures=failures,
        preemptions=preemptions,
        incidents=((1, cause),) if cause else (),
        resumed=((1, None, None), (2, 1, 8 if exact else None)),
    )


@pytest.mark.parametrize(("scenario", "crash_after"), some(CRASHES, quick=1))
def test_a_crash_after_any_effect_changes_nothing(scenario: str, crash_after: int) -> None:
    world, story = live(scenario, crash_after=crash_after)
    assert world.judge.closing() == []
    assert story == undisturbed(scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_crashes_cover_the_whole_story(scenario: str) -> None:
    """The next of them comes too late to happen: every effect before it has been tried."""
    world, _ = live(scenario, crash_after=EFFECTS[scenario])
    assert [operator.name for operator in world.operators] == ["operator-1"]
