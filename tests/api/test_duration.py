"""Durations read as people and CEL read them."""

from __future__ import annotations

from datetime import timedelta

import cel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainrun_operator.api.duration import Duration, between


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("500ms", 0.5),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h2m3s4ms", 3723.004),
        ("100m", 6000),
    ],
)
def test_a_duration_has_its_length(text: str, seconds: float) -> None:
    assert Duration(text).seconds == seconds
    assert Duration(text).timedelta == timedelta(seconds=seconds)
    assert str(Duration(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "1d", "1.5h", "-1s", "+1s", "1s1m", "1s1s", " 1s", "1s\n", "1S", "٣s", "1us"],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration such as 90s, 1h30m or 500ms"):
        Duration(text)


def test_a_number_too_large_for_cel_is_refused() -> None:
    assert Duration("999999h9999999m999999999s").seconds > 0
    with pytest.raises(ValueError, match="must be a duration"):
        Duration("1000000h")


@pytest.mark.slow
@given(
    st.tuples(*(st.none() | st.integers(0, 99_999) for _ in range(4))).filter(
        lambda numbers: any(number is not None for number in numbers)
    )
)
def test_cel_reads_the_same_length(numbers: tuple[int | None, ...]) -> None:
    units = zip(numbers, ("h", "m", "s", "ms"), strict=True)
    text = "".join(f"{number}{unit}" for number, unit in units if number is not None)

    assert cel.evaluate("duration(self)", {"self": text}) == Duration(text).timedelta


def test_the_bounds_of_a_duration_belong_to_it() -> None:
    rule = between("3s", "1h")

    assert rule.holds(Duration("3s"))
    assert rule.holds(Duration("1h"))
    assert not rule.holds(Duration("2s999ms"))
    assert not rule.holds(Duration("1h1ms"))
    assert rule.message == "must be between 3s and 1h"
