from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy
import pytest

from trainrun.contract import metrics


def test_numbers_strings_and_booleans_stay_what_they_are() -> None:
    given = {"loss": 0.25, "seen": 10**20, "phase": "warm-up", "best": True}
    back = metrics.decode(json.loads(metrics.to_json(given)))
    assert back == given
    assert [type(value) for value in back.values()] == [float, int, str, bool]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinities_survive_json(value: float) -> None:
    text = metrics.to_json({"loss": value})
    assert metrics.decode(json.loads(text)) == {"loss": value}


def test_nan_survives_json() -> None:
    text = metrics.to_json({"loss": math.nan})
    back = metrics.decode(json.loads(text))["loss"]
    assert isinstance(back, float)
    assert math.isnan(back)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (numpy.float32(0.5), 0.5),
        (numpy.float64(0.5), 0.5),
        (numpy.int64(7), 7),
        (numpy.bool_(True), True),
        (Fraction(1, 4), 0.25),
    ],
)
def test_scalars_of_numeric_libraries_become_plain_ones(value: object, plain: object) -> None:
    encoded = json.loads(metrics.to_json({"x": value}))["x"]
    assert encoded == plain
    assert type(encoded) is type(plain)


def test_a_non_finite_numpy_scalar_survives() -> None:
    assert metrics.to_json({"x": numpy.float32("inf")}) == '{"x":{"float":"Infinity"}}'


def test_an_array_of_one_element_is_refused_with_its_key_and_the_remedy() -> None:
    with pytest.raises(TypeError) as refused:
        metrics.to_json({"lr": 0.1, "loss": numpy.array(1.0)})
    assert str(refused.value) == (
        "metric 'loss' is numpy.ndarray: metrics are numbers, strings and booleans; "
        "pass a number: for one element, value.item()"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"train": 1.0}, "'loss' is dict: .* flat names such as \"loss/train\""),
        (None, "'loss' is NoneType: .* leave out the key"),
        ([1.0], "'loss' is list: metrics are numbers, strings and booleans$"),
        (1j, "'loss' is complex"),
    ],
)
def test_what_cannot_travel_is_refused_with_the_remedy(value: object, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        metrics.to_json({"loss": value})


def test_names_are_strings() -> None:
    with pytest.raises(TypeError, match=r"name of a metric must be a string, got 3 \(int\)"):
        metrics.to_json({3: 1.0})  # type: ignore[dict-item]


def test_metrics_are_a_mapping() -> None:
    with pytest.raises(TypeError, match="metrics must be a mapping of names to values, got float"):
        metrics.to_json(0.5)  # type: ignore[arg-type]


def test_no_metrics_are_no_metrics() -> None:
    assert metrics.to_json(None) == "{}"


def test_any_text_survives() -> None:
    given = {'a "quoted" name\n': "tab\t, \u00e9, \U0001f600, \x00 and a lone \ud800"}
    assert json.loads(metrics.to_json(given)) == given


@pytest.mark.parametrize(("sign", "infinity"), [(1, "Infinity"), (-1, "-Infinity")])
def test_an_integer_that_no_float_can_hold_is_infinite(sign: int, infinity: str) -> None:
    """JSON's readers take numbers for floats; an API server refuses what is larger."""
    assert json.loads(metrics.to_json({"n": sign * 10**5000})) == {"n": {"float": infinity}}


def test_values_that_only_a_newer_peer_sends_are_left_out() -> None:
    assert metrics.decode({"loss": 1.0, "later": [1], "other": {"tensor": "x"}}) == {"loss": 1.0}
