"""A sweep of hundreds of trials: how much of it stands in the API server at once.

`make sim` lives some of a thousand.
"""

from __future__ import annotations

import json

import pytest

from tests.simulation.sweep.calm import calm_life
from tests.simulation.world.sweep.faults import live_large
from tests.support.levels import examples

AT_ONCE, FAILED_RUNS = 20, 5
TRIALS = 300


@pytest.mark.slow
def test_hundreds_of_trials_need_few_objects_and_a_small_status() -> None:
    life = calm_life(
        budget={"trials": TRIALS},
        maxConcurrent=AT_ONCE,
        maxUnplaced=AT_ONCE,
        retention={"bestCheckpoints": 3, "failedRuns": FAILED_RUNS},
    )
    life.crashes = 0.1
    life.until(lambda: life.judge.ledger.ends.now, turns=1_000_000)
    view = life.end()  # the judge has looked at the size of each status

    cluster = life.home.cluster
    assert view.asked == TRIALS
    assert cluster.most_runs <= AT_ONCE + FAILED_RUNS + 1
    assert len(json.dumps(cluster.sweep.status)) < 4096


@pytest.mark.slow
def test_the_same_holds_where_operators_and_clerks_die_and_the_store_is_away() -> None:
    trials = max(40, examples(150))
    life = live_large(1, trials=trials, at_once=AT_ONCE)

    assert len(life.judge.ledger.params) == trials
    assert life.home.cluster.most_runs <= AT_ONCE + FAILED_RUNS + 1
