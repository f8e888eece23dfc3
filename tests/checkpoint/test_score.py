"""Which of several checkpoints is the best."""

from __future__ import annotations

import json
import math

import pytest

from trainrun.checkpoint.selection import Score
from trainrun.contract import metrics
from trainrun.contract.checkpoint_id import CheckpointId

MAX, MIN = Score(metric="accuracy", order="Max"), Score(metric="accuracy", order="Min")


def cid(step: int, attempt: int = 1) -> CheckpointId:
    return CheckpointId(attempt=attempt, step=step)


def order(score: Score, values: dict[int, object]) -> list[int]:
    """Steps of checkpoints with these values of the metric, as reported; None: not reported."""
    found = {}
    for step, value in values.items():
        told = {} if value is None else {"accuracy": value, "loss": 1.0}
        number = score.of(json.loads(metrics.to_json(told)))
        if number is not None:
            found[cid(step)] = number
    return [checkpoint.step for checkpoint in score.best_first(found, map(cid, values))]


def test_the_greatest_or_the_least_value_is_the_best() -> None:
    values = {1: 0.5, 2: 0.9, 3: -0.1, 4: 3}
    assert order(MAX, values) == [4, 2, 1, 3]
    assert order(MIN, values) == [3, 1, 2, 4]


@pytest.mark.parametrize("score", [MAX, MIN])
@pytest.mark.parametrize("no_number", [None, math.nan, "0.9", True])
def test_what_has_no_number_is_the_worst(score: Score, no_number: object) -> None:
    assert order(score, {1: -5.0, 2: no_number, 3: 5.0})[-1] == 2


@pytest.mark.parametrize("score", [MAX, MIN])
def test_of_equal_ones_the_newer_is_better(score: Score) -> None:
    assert order(score, {1: 0.5, 2: 0.5, 3: None, 4: None}) == [2, 1, 4, 3]
    later = score.best_first({cid(1, attempt=2): 0.5, cid(9): 0.5}, [cid(9), cid(1, attempt=2)])
    assert later == [cid(1, attempt=2), cid(9)]


def test_an_infinite_loss_is_worse_than_any_other_and_better_than_none() -> None:
    assert order(MIN, {1: math.inf, 2: 1e300, 3: math.nan, 4: -math.inf}) == [4, 2, 1, 3]


def test_integers_of_any_size_are_compared() -> None:
    assert order(MAX, {1: 2**1000, 2: 2**5000, 3: 1.5}) == [2, 1, 3]
