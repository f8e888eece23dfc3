"""What is left out of a state that is too large, and how its user learns of it."""

from __future__ import annotations

import pytest

from tests.support.builders import an_agent
from trainrun.agent.exchange.heartbeat import fitted
from trainrun.contract.agent_state import AgentState, Problem, ProcessExit
from trainrun.contract.evidence import Posted
from trainrun.contract.wire import LARGEST_HEARTBEAT

PROCESSES = 64


def loud(character: str) -> AgentState:
    """64 processes that have ended with all the output that is kept."""
    ends = tuple(
        ProcessExit(
            rank=rank, code=1, exception=character * 1000, last_lines=(character * 400,) * 20
        )
        for rank in range(PROCESSES)
    )
    return an_agent(attempt=3, exits=ends, steps=(7,) * PROCESSES, metrics={"loss": 0.5})


def test_a_state_that_fits_is_told_in_full() -> None:
    state = an_agent(attempt=1, metrics={"loss": 0.5}, exits=(ProcessExit(rank=0, code=1),))
    assert fitted(state, LARGEST_HEARTBEAT) == state.to_json()


def test_metrics_go_first() -> None:
    state = an_agent(
        attempt=1,
        metrics={"a": "x" * 3000},
        posted=Posted(step=7, metrics={"a": "x" * 3000}),
        exits=(ProcessExit(rank=0, code=1),),
    )
    told = AgentState.from_json(fitted(state, 2000))
    assert (told.metrics, told.posted, told.exits) == ({}, Posted(step=7), state.exits)
    assert told.problems == (
        Problem(
            type="HeartbeatTooLarge",
            reason="Shortened",
            message="the heartbeat of worker run-0-1 exceeds the 2000 bytes that the operator "
            "accepts; left out: metrics. All lines are in the worker's output; report fewer or "
            "shorter metrics",
        ),
    )


@pytest.mark.case("script", "A worker's state is larger than a heartbeat")
@pytest.mark.parametrize("character", ["x", "損", "\x1b", "\U0001f525"])
def test_the_largest_state_of_a_worker_fits_and_says_who_ended_and_how(character: str) -> None:
    text = fitted(loud(character), LARGEST_HEARTBEAT)
    assert len(text) <= LARGEST_HEARTBEAT
    told = AgentState.from_json(text)
    assert [(end.rank, end.code) for end in told.exits] == [(r, 1) for r in range(PROCESSES)]
    assert all(end.exception for end in told.exits)
    assert told.steps == (7,) * PROCESSES
    assert [problem.type for problem in told.problems] == ["HeartbeatTooLarge"]


def test_what_was_left_out_is_told_the_same_way_in_the_next_heartbeat() -> None:
    """Else each would be news."""
    first, second = (AgentState.from_json(fitted(loud(c), LARGEST_HEARTBEAT)) for c in "xy")
    assert first.problems == second.problems
