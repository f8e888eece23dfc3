"""What rank 0 has reported, as curves of bounded size, drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainrun_operator.cli.explaining.metric_curves import MOST_CURVES, MOST_METRICS, MetricCurves
from trainrun_operator.cli.report.drawing import MOST_POINTS, PlotArea, frame, no_numbers, svg
from trainrun_operator.cli.report.model import Block, Curves, Document, Section, TextLine
from trainrun_operator.cli.report.page import page


def records(attempt: int, steps: range, rank: int = 0, **metrics: Any) -> Iterator[dict[str, Any]]:
    for step in steps:
        told = {name: step if value is None else value for name, value in metrics.items()}
        yield {"attempt": attempt, "step": step, "rank": rank, "metrics": told}


def blocks(told: Iterable[Mapping[str, object]]) -> tuple[Block, ...]:
    curves = MetricCurves()
    curves.add(told)
    return curves.blocks()


def drawn(told: Iterable[Mapping[str, object]]) -> Curves:
    curves, *_ = blocks(told)
    assert isinstance(curves, Curves)
    return curves


def test_each_attempt_has_its_curve_of_each_number_that_rank_0_reported() -> None:
    found = drawn(
        [
            *records(1, range(1, 3), loss=None, note="words", good=True),
            *records(1, range(1, 3), rank=1, loss=7),
            *records(2, range(2, 4), loss=None, lr=0.5),
        ]
    )
    assert found.names == ("attempt 1", "attempt 2")
    assert found.pictures == {
        "loss": {0: [(1, 1.0), (2, 2.0)], 1: [(2, 2.0), (3, 3.0)]},
        "lr": {1: [(2, 0.5), (3, 0.5)]},
    }


def test_for_a_comparison_each_attempt_takes_over_at_its_first_step() -> None:
    curves = MetricCurves()
    curves.add([*records(1, range(1, 5), loss=1), *records(2, range(3, 5), loss=2)])
    newer = records(2, range(4, 7), loss=3)
    assert curves.joined(newer) == {
        "loss": [(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0), (5, 3.0), (6, 3.0)]
    }


def test_a_long_run_has_few_points_from_its_first_step_to_its_last() -> None:
    points = drawn(records(1, range(1, 10_000), loss=None)).pictures["loss"][0]
    assert MOST_POINTS / 2 < len(points) <= MOST_POINTS + 1
    assert points[0] == (1, 1.0)
    assert points[-1] == (9_999, 9_999.0)


def test_metrics_and_attempts_are_bounded_and_what_is_left_out_is_named() -> None:
    many = {f"m{number}": 1 for number in range(MOST_METRICS + 2)}
    found, left_out = blocks(records(1, range(1, 2), **many))
    assert isinstance(found, Curves)
    assert len(found.pictures) == MOST_METRICS
    assert left_out == TextLine(f"Not drawn: m{MOST_METRICS}, m{MOST_METRICS + 1}.")
    attempts = [
        record for number in range(100) for record in records(number, range(1, 2), loss=None)
    ]
    assert len(drawn(attempts).pictures["loss"]) == MOST_CURVES


def test_what_is_no_record_is_left_out() -> None:
    odd: list[dict[str, Any]] = [
        {"attempt": 1, "step": 1, "rank": 0, "metrics": 7},
        {"attempt": "x", "step": 1, "rank": 0, "metrics": {"loss": 1}},
        {"attempt": 1, "step": 1, "rank": 0, "metrics": {"loss": 10**400, "deep": {"x": 1}}},
    ]
    assert blocks(odd) == ()


def test_a_loss_that_became_nan_is_named_and_breaks_its_line() -> None:
    nan = {"float": "NaN"}
    told = [
        *records(3, range(1, 3), loss=1.0),
        *records(3, range(3, 4), loss=nan),
        *records(3, range(4, 6), loss=2.0),
    ]
    curves = drawn(told)
    picture = curves.pictures["loss"]
    assert math.isnan(picture[0][2][1])
    assert list(no_numbers(curves, "loss")) == ["NaN at step 3 of attempt 3"]
    assert frame(picture) == PlotArea(1.0, 2.0, 1, 5)
    assert svg(picture, compared=False).count("M") == 2
    assert 'class="c2"' in svg({2: picture[0]}, compared=False)


def test_thirty_attempts_repeated_seven_colors_under_a_legend_of_thirty_squares() -> None:
    names = tuple(f"attempt {number}" for number in range(1, 31))
    picture = {run: [(1, float(run)), (2, 1.0)] for run in range(30)}
    curves = Curves(names=names, pictures={"loss": picture})
    text = page(Document(name="x", headline="", sections=(Section(title="", blocks=(curves,)),)))
    strokes = re.findall(r"stroke=\"(hsl[^\"]+)", text)
    assert len(set(strokes)) == 30
    assert re.findall(r"fill=\"(hsl[^\"]+)", text) == strokes
    assert re.findall(r"</svg>(attempt \d+)</span>", text) == ["attempt 1", "attempt 30"]
    assert '<span title="attempt 7"><svg' in text


def test_without_a_number_there_is_no_picture_and_one_point_is_a_dot() -> None:
    nothing = {0: [(1, math.inf)]}
    assert svg(nothing, compared=False) == ""
    assert frame(nothing) is None
    curves = Curves(names=("attempt 1",), pictures={"loss": nothing})
    assert list(no_numbers(curves, "loss")) == ["infinite at step 1 of attempt 1"]
    assert 'd="M0.0 100.0 L0.0 100.0"' in svg({0: [(7, 3.0)]}, compared=False)


def test_the_largest_numbers_fit_into_the_picture() -> None:
    assert "nan" not in svg({0: [(1, -1.7e308), (2, 1.7e308)]}, compared=False)
