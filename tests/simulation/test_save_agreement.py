"""An operator dies while the ranks agree on a call of should_save(): nobody waits for the next."""

from __future__ import annotations

import pytest

from tests.simulation.one_run import a_config, a_life, runs, until, worker
from tests.simulation.world.agent import SimAgent
from tests.simulation.world.simulation import Simulation
from trainrun.contract.agent_state import Problem

AWAY = 600.0
"""Seconds without an operator."""
BOUND = 30.0
"""Seconds that ranks wait at most while the store answers."""


def gang(world: Simulation) -> list[SimAgent]:
    return [agent for agent in world.gang(1) if agent.alive]


def prepared(world: Simulation) -> int:
    return sum(agent.vote.prepared is not None for agent in gang(world))


def decided(world: Simulation) -> bool:
    """Every rank knows whether to save."""
    return prepared(world) == 0 and len({agent.vote.committed for agent in gang(world)}) == 1


def problem_of(world: Simulation) -> Problem | None:
    return next((agent.tally.problem for agent in gang(world) if agent.tally.problem), None)


def one_that_loses_its_operator(*, asked: int, seed: int) -> Simulation:
    """A life in which so many workers are asked to save before the operator dies."""
    config = a_config(limits={"failures": 0, "preemptions": -1})
    world = a_life(seed=seed, config=config, total_steps=2000)
    # By then the operator has heard that the script calls should_save().
    until(world, lambda: runs(world, 1) and all(agent.vote.calls > 3 for agent in gang(world)))
    world.preempt(worker(world, 1), grace=2 * AWAY, known=True)
    until(world, lambda: prepared(world) == asked)
    world.crash_operator(world.operators[0], back_after=AWAY)
    return world


@pytest.mark.case("operator", "The operator dies while the agents agree on a should_save() call")
@pytest.mark.parametrize("asked", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_ranks_do_not_wait_for_an_operator_that_dies_before_it_has_decided(
    asked: int, seed: int
) -> None:
    world = one_that_loses_its_operator(asked=asked, seed=seed)
    until(world, lambda: decided(world), within=BOUND)
    assert all(agent.may_call(rank) for agent in gang(world) for rank in agent.ranks)
    assert world.judge.mistakes == []


@pytest.mark.parametrize("seed", range(5))
def test_the_next_operator_goes_on_from_what_the_agents_have_decided(seed: int) -> None:
    world = one_that_loses_its_operator(asked=3, seed=seed)
    until(world, lambda: runs(world, 2), within=2 * AWAY)
    assert [incident.cause for incident in world.status.incidents] == ["Preempted"]
    assert world.judge.mistakes == []


@pytest.mark.case("operator", "The operator and the store are away during a should_save() call")
def test_without_the_store_ranks_wait_until_it_is_back() -> None:
    world = one_that_loses_its_operator(asked=2, seed=1)
    world.store_away(120.0)
    call = next(agent.vote.prepared for agent in gang(world) if agent.vote.prepared)
    until(world, lambda: "the store is away" in str(problem_of(world)), within=BOUND)
    problem = problem_of(world)
    assert problem is not None
    assert (problem.type, problem.reason) == ("SaveWaiting", "StorageUnavailable")
    assert problem.message == (
        f"training waits at call {call} of should_save(): the operator has not decided whether to "
        "save there, and the votes of the other workers cannot be read from the store (the store "
        "is away). It continues when the operator or the store answers"
    )
    until(world, lambda: decided(world), within=120.0 + BOUND)
    assert problem_of(world) is None
