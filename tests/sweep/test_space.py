"""Domains, conditions, and what the samplers draw from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sweeps import a_search
from trainrun.sweep.samplers import ask, grid_size
from trainrun.sweep.search import FloatRange, IntRange, OneOf, Parameter, choose, same

SHARES = st.floats(0, 1, exclude_max=True)
GRID = (
    Parameter("a", IntRange(1, 3)),
    Parameter("b", FloatRange(0.0, 0.3, step=0.1)),
    Parameter("c", OneOf((True, "x"))),
)


@given(SHARES, st.floats(1e-9, 1e9), st.floats(1e-9, 1e9), st.booleans())
def test_a_real_number_lies_within_its_bounds(a: float, b: float, c: float, log: bool) -> None:
    low, high = sorted((b, c))

    value = FloatRange(low, high, log=log).at(a)

    assert isinstance(value, float)
    assert low <= value <= high


@given(SHARES, st.integers(1, 10**6), st.integers(0, 10**6), st.booleans(), st.integers(1, 50))
def test_a_whole_number_lies_within_its_bounds_and_on_its_steps(
    share: float, low: int, more: int, log: bool, step: int
) -> None:
    value = IntRange(low, low + more, log=log, step=1 if log else step).at(share)

    assert type(value) is int
    assert low <= value <= low + more
    assert log or (value - low) % step == 0


RANGES = (
    FloatRange(-3.0, 5.0),
    FloatRange(1e-5, 0.1, log=True),
    FloatRange(0.0, 0.3, step=0.1),
    FloatRange(0.0, 1.0, step=0.3),
    IntRange(-4, 4),
    IntRange(2, 13, step=2),
    IntRange(1, 512, log=True),
)


@given(st.sampled_from(RANGES), SHARES)
def test_the_share_of_a_value_leads_back_to_it(domain: FloatRange | IntRange, at: float) -> None:
    value = domain.at(at)
    share = domain.share_of(float(value))
    assert 0 <= share <= 1
    assert domain.at(min(share, 1 - 1e-16)) == pytest.approx(value, rel=1e-9, abs=1e-9)


def test_a_step_has_its_share_in_the_middle_of_what_is_made_into_it() -> None:
    assert FloatRange(0.0, 0.3, step=0.1).share_of(0.1) == pytest.approx(0.375)
    assert IntRange(1, 4).share_of(4) == 0.875
    assert FloatRange(2.0, 2.0).share_of(2.0) == 0.5


def test_steps_of_real_numbers_are_what_they_say() -> None:
    assert FloatRange(0.0, 0.3, step=0.1).points() == (0.0, 0.1, 0.2, 0.3)
    assert FloatRange(0.0, 0.3, step=0.1).at(0.999) == 0.3
    with pytest.raises(ValueError, match="without a step cannot be listed"):
        FloatRange(0, 1).points()


def test_a_number_by_magnitude_is_as_often_small_as_great() -> None:
    drawn = [FloatRange(1e-4, 1.0, log=True).at(at / 1000) for at in range(1000)]

    assert sum(it < 1e-2 for it in drawn if isinstance(it, float)) == 500


def test_one_is_true_to_nobody() -> None:
    assert same(1, 1.0)
    assert not same(1, True)
    assert not same("1", 1)


def test_a_parameter_is_there_only_where_its_conditions_hold() -> None:
    space = (
        Parameter("optimizer", OneOf(("adamw", "sgd"))),
        Parameter("momentum", FloatRange(0, 1), when=(("optimizer", ("sgd",)),)),
        Parameter("nesterov", OneOf((True, False)), when=(("momentum", (0.5,)),)),
    )

    assert choose(space, lambda it: "adamw") == {"optimizer": "adamw"}
    picked = {"optimizer": "sgd", "momentum": 0.5, "nesterov": True}
    assert choose(space, lambda it: picked[it.name]) == picked


def test_the_same_seed_and_number_give_the_same_parameters_for_ever() -> None:
    assert ask(a_search(seed=7), 3) == ask(a_search(seed=7), 3)
    assert ask(a_search(seed=7), 3) != ask(a_search(seed=8), 3)
    # Written down: a new version of Python, or of ours, must go on with the same search.
    assert ask(a_search(seed=7), 0) == {
        "lr": 0.00011285389542190185,
        "optimizer": "adamw",
    }


def test_first_trials_are_tried_first_and_what_they_leave_out_is_drawn() -> None:
    search = a_search(first=({"lr": 0.01},))

    assert ask(search, 0)["lr"] == 0.01
    assert ask(search, 0)["optimizer"] == ask(a_search(), 0)["optimizer"]
    assert ask(search, 1) == ask(a_search(), 1)


def test_a_grid_has_every_point_once_in_an_order_of_the_seed() -> None:
    """Edge case 21: a grid stuck below its size."""
    search = a_search(space=GRID, sampler="Grid")
    size = grid_size(GRID)

    points = [ask(search, it) for it in range(size)]

    assert size == 24
    assert len({tuple(point.items()) for point in points}) == 24
    assert [list(point) for point in points] == [["a", "b", "c"]] * 24
    other = a_search(space=GRID, sampler="Grid", seed=1)
    assert points != [ask(other, it) for it in range(size)]
    with pytest.raises(IndexError):
        ask(search, size)


def test_a_space_with_one_point_gives_it_to_every_trial() -> None:
    """Edge case 44."""
    search = a_search(space=(Parameter("a", OneOf((5,))),))

    assert [ask(search, it) for it in range(3)] == [{"a": 5}] * 3
