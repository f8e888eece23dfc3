"""Random lives of sweeps: operators and clerks that die between any two effects, two of each alive,
messages lost, doubled and late, a store that is away, slow, or has done what it does not confirm,
gangs without room, users who edit, apply again and elsewhere, delete runs.

`live(4711)` lives a life again.
"""

from __future__ import annotations

import pytest

from tests.simulation.sweep.calm import calm_life, kill_leader, leader
from tests.simulation.world.sweep.clerks import SimulatedClerk
from tests.simulation.world.sweep.faults import live
from tests.simulation.world.sweep.sweep_object import MOST_TRIALS
from tests.support.levels import some

LIVES = 20
"""Of each test."""


@pytest.mark.slow
@pytest.mark.case("sweeps", "The process that leads the sweep is killed")
@pytest.mark.case("sweeps", "The newest records of a sweep's log are lost")
@pytest.mark.case(
    "sweeps", "budget.activeTime is used up before a trial has a value", counted="the sweep fails"
)
@pytest.mark.parametrize("first", some(range(0, 200, LIVES), quick=1))
def test_whatever_breaks_each_number_is_asked_once_told_once_and_the_sweep_ends(first: int) -> None:
    for seed in range(first, first + LIVES):
        _, view = live(seed)

        assert view.end is not None, seed
        assert view.asked <= MOST_TRIALS, seed


def test_without_faults_every_trial_is_tried_and_the_best_is_the_least_of_all() -> None:
    life = calm_life(budget={"trials": 9}, retention={"bestCheckpoints": 2})

    view = life.end()

    assert view.end is not None
    assert view.end.record.reason == "AllTrialsEnded"
    assert (view.asked, len(view.sessions)) == (9, 1)
    status = life.home.cluster.sweep.status
    assert (status["phase"], status["trials"]["text"]) == ("Succeeded", "9/9")
    assert status["best"]["trial"] == 0


def test_a_grid_ends_with_all_its_points() -> None:
    """Edge case 21."""
    choice = {"name": "lr", "choice": [0.1, 0.2, 0.3, 0.4, 0.5]}
    life = calm_life(space=[choice], sampler={"name": "Grid"}, budget={})

    view = life.end()

    assert sorted(it.params["lr"] for it in view.trials.values()) == [0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize("nth", some(range(60), quick=4))
def test_an_operator_may_die_before_any_of_its_effects(nth: int) -> None:
    life = calm_life(seed=nth, budget={"trials": 3}, retention={"bestCheckpoints": 1})
    effects = 0

    def at_nth_effect() -> bool:
        nonlocal effects
        effects += leader(life).doing not in ("look", "wait for the Lease")
        return effects > nth or life.judge.ledger.ends.now is not None

    life.until(at_nth_effect)
    kill_leader(life)
    view = life.end()
    assert view.count("Succeeded") == 3


@pytest.mark.parametrize("nth", some(range(0, 400, 7), quick=4))
def test_a_clerk_may_die_before_and_after_any_call_to_the_store(nth: int) -> None:
    life = calm_life(seed=nth, budget={"trials": 3}, retention={"bestCheckpoints": 1})
    calls = 0

    def at_nth_call(_clerk: SimulatedClerk, _moment: object) -> bool:
        nonlocal calls
        calls += 1
        return calls == nth + 1

    life.dies_at = at_nth_call
    view = life.end()
    assert view.count("Succeeded") == 3
