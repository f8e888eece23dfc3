"""How much the parameters of a sweep matter."""

from __future__ import annotations

import math

from trainrun.sweep.search import Scalar
from trainrun.sweep.view import TrialView
from trainrun_operator.cli.explaining.importance import importances


def trials(count: int) -> list[TrialView]:
    """The value depends on `lr`, best in the middle, and a little on `kind`; not on `seed`."""
    found = []
    for number in range(count):
        lr, kind, seed = number * 7 % count, ("a", "b")[number % 2], number * 11 % count
        params: dict[str, Scalar] = {"seed": seed, "lr": lr, "kind": kind, "fixed": True}
        value = abs(lr - count / 2) + (kind == "a") * count / 8
        found.append(TrialView(number, params, state="Succeeded", value=value))
    return found


def test_a_parameter_counts_by_what_it_explains_of_the_ranking_also_if_its_best_is_inside() -> None:
    found = importances(trials(60), ("seed", "lr", "kind", "fixed", "unknown"))
    assert [*found][:2] == ["lr", "kind"]
    assert found["lr"] > 0.7
    assert 0.02 < found["kind"] < 0.4
    assert found["seed"] < 0.1
    assert found["fixed"] == found["unknown"] == 0.0


def test_nothing_is_said_of_few_trials_with_a_value() -> None:
    some = [*trials(9), TrialView(9, {"lr": 1}), TrialView(10, {"lr": 2}, value=math.nan)]
    assert importances(some, ("lr",)) == {}
