"""Random lives of a run: whatever breaks, and whenever, the promises hold at every moment."""

from __future__ import annotations

import os

import pytest

from tests.simulation.drawn import deaf_life, drawn_life
from tests.simulation.holding import holds
from tests.simulation.lives import Life
from tests.simulation.nightly import ONE_IN, special_mistake
from tests.simulation.striking import Fault
from tests.support.first_life import first_life, told_on_failure
from tests.support.levels import examples

LIVES = int(os.environ.get("TRAINRUN_LIVES") or examples(1000))
"""Random lives; the promise is at least 1,000 in a test run, and 3,000 before a change is done."""

PARTS = max(1, LIVES // 100)
"""Tests that share them, so that all processes take some."""

A_NODE_DIES_BEFORE_ITS_AGENT_CALLS = Life(
    seed=48,
    replicas=1,
    max_failures=-1,
    max_preemptions=None,
    loss=0.1,
    duplicate=0.0,
    delay=0.02,
    hang=False,
    grace=0.0,
    faults=(
        Fault(kind="kill", at=0.0, slot=0, size=0.0),
        Fault(kind="kill", at=0.0, slot=0, size=0.0),
        Fault(kind="dark-node", at=2.0, slot=0, size=1.0),
        Fault(kind="blind", at=11.0, slot=0, size=1.0),
        Fault(kind="hang", at=32.0, slot=0, size=1.0),
    ),
)
"""And its deletion does not get through until health.startTimeout is over."""

A_RANK_HAD_LEFT_WHEN_A_STEP_WAS_REPORTED = Life(
    seed=5250,
    replicas=3,
    max_failures=3,
    max_preemptions=None,
    loss=0.0,
    duplicate=0.0,
    delay=1.0,
    hang=True,
    grace=0.0,
    faults=(
        Fault(kind="leave", at=14.49, slot=1, size=0.99),
        Fault(kind="leave", at=22.76, slot=0, size=0.98),
        Fault(kind="kill", at=19.77, slot=1, size=0.58),
        Fault(kind="kill", at=34.8, slot=3, size=0.19),
    ),
    processes=2,
    together=False,
    says_finished=True,
)
"""And its worker brought no files for it, and had not been told of it when the attempt ended."""

A_NODE_DIES_WHILE_ANOTHER_OPERATOR_BEGINS = Life(
    seed=293,
    replicas=2,
    max_failures=0,
    max_preemptions=None,
    loss=0.0,
    duplicate=0.0,
    delay=1.5,
    hang=False,
    grace=2.0,
    faults=(
        Fault(kind="second-operator", at=13.62, slot=3, size=0.78),
        Fault(kind="node-loss", at=13.62, slot=2, size=0.59),
        Fault(kind="second-operator", at=19.02, slot=2, size=0.64),
    ),
    deadline=25.0,
    processes=2,
)
"""Which hears of it only what the ranks on other nodes died of."""

NOBODY_SAYS_THAT_A_START_HAS_BEEN_WRITTEN = Life(
    seed=3563546261,
    replicas=4,
    max_failures=-1,
    max_preemptions=None,
    loss=0.3,
    duplicate=0.0,
    delay=0.2,
    hang=False,
    grace=2.0,
    faults=(
        Fault(kind="hang", at=2.51, slot=0, size=0.68),
        Fault(kind="stale-operator", at=14.31, slot=0, size=0.73),
        Fault(kind="lost-answer", at=23.82, slot=0, size=0.58),
    ),
)
"""Neither the answer nor the watch, and meanwhile an agent has not been heard for too long."""


ITS_LAST_STEP_IS_STORED_AND_A_RANK_FINDS_NOBODY = Life(
    seed=2482859946,
    replicas=2,
    max_failures=1,
    max_preemptions=-1,
    loss=0.0,
    duplicate=0.0,
    delay=0.2,
    hang=False,
    grace=30.0,
    faults=(
        Fault(kind="silence", at=22.72, slot=1, size=0.37),
        Fault(kind="some-do-not-meet", at=11.56, slot=3, size=0.71),
    ),
    deadline=60.0,
    ttl=5.0,
    processes=3,
    together=False,
    says_finished=True,
)
"""The others have nothing to do after it, and bring nothing that could be thrown away."""

ITS_ONLY_WORKER_LEAVES_BEFORE_ITS_SIGTERM_IS_HEARD_OF = Life(
    seed=1,
    replicas=1,
    max_failures=1,
    max_preemptions=None,
    loss=0.0,
    duplicate=0.0,
    delay=1.5,
    hang=False,
    grace=30.0,
    faults=(Fault(kind="own-limit", at=4.2, slot=0, size=1.0),),
)
"""Its attempt has begun, and its agent, which does not know that yet, has nothing to end first."""


@pytest.mark.slow
@pytest.mark.case(
    "processes", "The script fails at the same step again and again", counted="maxFailures"
)
@pytest.mark.case("processes", "A process is killed by a signal", counted="maxFailures")
@pytest.mark.case(
    "nodes", "A node is lost with health.forceDeletePods: false", counted="maxPreemptions"
)
@pytest.mark.case("nodes", "An agent falls silent", counted="maxFailures")
@pytest.mark.case("nodes", "Several losses in one attempt", counted="one incident")
@pytest.mark.case("operator", "The operator dies between any two actions")
@pytest.mark.case("operator", "Two operators act at once")
@pytest.mark.case("operator", "Heartbeats are lost, late, repeated or out of order")
@pytest.mark.case("operator", "The operator dies, or the TTL ends, while a limit is raised")
@pytest.mark.case(
    "decisions", "The script raises trainrun.FatalError", counted="maxFailures; the run fails"
)
@pytest.mark.case(
    "decisions", "The script raises trainrun.RetryError", counted="maxFailures after five in a row"
)
@pytest.mark.case("storage", "A worker that counts as lost comes back and commits")
@pytest.mark.parametrize("part", range(PARTS))
def test_every_life_keeps_the_promises_and_ends_when_faults_stop(part: int) -> None:
    """Counted once, one start record, never a bad resume, finished stays finished, and it ends.

    For each twenty also one of a script that never asks, one whose goodput is judged, and one with
    rare causes; `make sim` lives twice as many of them.
    """
    lives = range(first_life(), first_life() + LIVES)
    for number in lives[part * LIVES // PARTS : (part + 1) * LIVES // PARTS]:
        with told_on_failure(number):
            holds(drawn_life(number))
            mistake = special_mistake(number) if number // ONE_IN % 2 else ""
            assert not mistake, mistake


def test_a_node_dies_before_its_agent_calls() -> None:
    holds(A_NODE_DIES_BEFORE_ITS_AGENT_CALLS)


@pytest.mark.case(
    "nodes", "A worker's pod vanishes, or another pod takes its name", counted="maxPreemptions"
)
def test_a_step_is_resumed_that_every_rank_had_reported_but_one_that_had_left() -> None:
    holds(A_RANK_HAD_LEFT_WHEN_A_STEP_WAS_REPORTED)


@pytest.mark.case("nodes", "A node is lost", counted="maxPreemptions")
def test_a_run_fails_for_the_lost_node_and_not_for_what_its_peers_died_of() -> None:
    holds(A_NODE_DIES_WHILE_ANOTHER_OPERATOR_BEGINS)


@pytest.mark.slow
def test_no_worker_is_taken_from_an_attempt_that_its_operator_does_not_know_to_have_begun() -> None:
    """It was deleted as one that did not answer, and a preemption was counted."""
    holds(NOBODY_SAYS_THAT_A_START_HAS_BEEN_WRITTEN)


@pytest.mark.slow
def test_a_run_that_resumes_from_its_last_step_succeeds_once_all_ranks_have_met() -> None:
    holds(ITS_LAST_STEP_IS_STORED_AND_A_RANK_FINDS_NOBODY)


def test_a_worker_that_leaves_before_its_sigterm_is_heard_of_was_told_to_end() -> None:
    """It was rare life 103: what ended it was said to be unknown."""
    holds(ITS_ONLY_WORKER_LEAVES_BEFORE_ITS_SIGTERM_IS_HEARD_OF)


@pytest.mark.slow
@pytest.mark.parametrize(
    "life",
    [
        pytest.param(drawn_life(4061), id="a failure leaves the window before it is over"),
        pytest.param(drawn_life(7885), id="ranks look for one that has left"),
        pytest.param(drawn_life(11580), id="a checkpoint is named like one of the run before"),
        pytest.param(drawn_life(993263752), id="a silent worker is well again beside its spare"),
        pytest.param(deaf_life(926), id="a signal ends a script well, and a leader is behind"),
    ],
)
def test_lives_that_broke_a_promise_or_seemed_to_hold(life: Life) -> None:
    """The first was the operator's fault, the others that of the world or of its judge."""
    holds(life)
