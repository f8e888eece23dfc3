"""The log's records, one after the other, and what they come to."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sweeps import a_search, a_view, asked, begun, report, reported, told
from trainrun.contract import wire
from trainrun.contract.wire import MalformedMessage
from trainrun.sweep.records import (
    Amend,
    Ask,
    End,
    LogEntry,
    Record,
    Reports,
    TrialReport,
    written,
)
from trainrun.sweep.view import SweepView, apply, best, fold, own_value

ERROR = told(0, "Errored", reason="AppError", message="boom", restarts=3)
RECORDS: list[Record] = [
    begun(),
    begun(uid="other", resume_errored=True),
    begun(token=1, restart_errored=True, resume_unfinished=False),
    asked(0),
    asked(1),
    asked(2),
    reported(0, s1=0.5, s2=math.nan),
    reported(1, s1=math.inf),
    Reports((report(0, 3, 0.1, attempt=2, resumed=1, seq=1), report(9, 1, 0.0))),
    told(0),
    told(1, "Diverged"),
    replace(told(0), opening=2),
    ERROR,
    End("Succeeded", "AllTrialsEnded", "done"),
    Amend(3),
    Amend(5),
]


@given(st.lists(st.sampled_from(RECORDS), max_size=30))
def test_any_log_can_be_folded_and_keeps_what_must_be_kept(records: list[Record]) -> None:
    view = SweepView()
    for record in records:
        before, view = view, apply(view, record)
        assert view.position == before.position + 1
        assert list(view.trials) == list(range(view.asked))
        for number, trial in before.trials.items():
            now = view.trials[number]
            assert now.params == trial.params
            assert now.opening >= trial.opening
            assert now.incarnation >= trial.incarnation
            if not trial.open and now.opening == trial.opening:
                assert now == trial
        assert view.active >= before.active


@pytest.mark.parametrize("record", RECORDS, ids=lambda it: it.kind)
def test_a_record_is_read_as_it_was_written_in_strict_json(record: Record) -> None:
    text = json.dumps(wire.encode(LogEntry(record)), allow_nan=False)

    assert wire.decode(LogEntry, json.loads(text)).record == record


def test_a_record_of_a_kind_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(MalformedMessage, match="unknown kind 'Leg'"):
        wire.decode(LogEntry, {"version": 2, "record": {"kind": "Leg"}})


@pytest.mark.parametrize("value", [0.1, -0.0, 1.2e32, math.inf, -math.inf])
def test_a_value_is_read_exactly_as_it_was_reported(value: float) -> None:
    """Edge case 23: `1.2e+32` unreadable."""
    assert repr(float(written(value))) == repr(value)


# what does not fit changes nothing


def test_a_number_is_given_once_and_only_in_order() -> None:
    """Edge case 36."""
    view = a_view(asked(0), Ask(0, {"lr": 9.0}), Ask(5, {"lr": 9.0}))

    assert {it: trial.params for it, trial in view.trials.items()} == {0: {"lr": 0.1}}
    assert fold([asked(0)]).asked == 0


def test_a_trial_whose_folder_was_in_use_begins_with_a_later_incarnation_and_opening() -> None:
    again = begun(token=1, restart_errored=True)
    view = a_view(Ask(0, {"lr": 0.1}, first=3), told(0), told(0, "Errored", opening=3), again)

    trial = view.trials[0]
    assert (trial.state, trial.opening, trial.incarnation, trial.first) == ("Open", 4, 4, 3)
    assert a_view(asked(0)).trials[0].first == 1


def test_an_opening_is_told_once() -> None:
    view = a_view(asked(0), ERROR, told(0), told(3), told(0, "Open"))

    trial = view.trials[0]
    assert (trial.state, trial.reason, trial.message, trial.restarts) == (
        "Errored",
        "AppError",
        "boom",
        3,
    )


def test_the_late_result_of_a_trial_that_nobody_knows_is_no_error() -> None:
    """Edge case 10."""
    view = a_view(asked(0), told(0), reported(0, s9=0.0), reported(7, s1=0.0), told(7))

    assert view.trials[0].values == {}
    assert list(view.trials) == [0]


def test_an_end_holds_until_it_is_taken_back_by_its_position() -> None:
    end = End("Succeeded", "AllTrialsEnded", "done")
    view = a_view(end, End("Failed", "X", "later"))

    assert view.end is not None
    assert (view.end.position, view.end.record) == (2, end)
    assert fold([Amend(9)], view).end is not None
    assert fold([Amend(2)], view).end is None
    assert fold([Amend(2), Amend(2)], view).end is None
    assert fold([end]).end is None


def test_the_same_parameters_again_are_marked() -> None:
    """Edge case 34."""
    view = a_view(asked(0), Ask(1, {"lr": 0.1}), Ask(2, {"lr": 0.1}))

    assert [it.duplicate_of for it in view.trials.values()] == [None, 0, 0]


# reports


def test_one_and_true_are_not_the_same_parameter() -> None:
    view = a_view(*(replace(asked(n), params={"a": it}) for n, it in enumerate((1, True, 1.0))))

    assert [it.duplicate_of for it in view.trials.values()] == [None, None, 0]


def test_the_first_value_of_a_step_stands_for_verdicts_and_the_surviving_one_for_results() -> None:
    view = a_view(
        asked(0),
        reported(0, s1=0.9, s2=0.8, s3=0.7),
        Reports((report(0, 2, 0.5, attempt=2, resumed=1, seq=1),)),
        Reports((report(0, 4, 0.1, seq=4),)),  # of the attempt that was fenced
    )

    trial = view.trials[0]
    assert trial.values == {1: 0.9, 2: 0.8, 3: 0.7, 4: 0.1}
    assert trial.results == {1: 0.9, 2: 0.5}
    assert own_value(trial, a_search().objective).step == 2  # type: ignore[union-attr]


def test_a_report_that_comes_twice_or_late_changes_nothing() -> None:
    once = a_view(asked(0), reported(0, s1=0.9, s2=0.8))

    again = fold([reported(0, s1=0.1), Reports((report(0, 2, 0.1),))], once)

    assert again.trials == once.trials


@given(
    st.lists(
        st.builds(
            report,
            st.integers(0, 2),
            st.integers(1, 4),
            st.sampled_from([0.5, 0.25, math.inf]),
            incarnation=st.integers(1, 2),
            attempt=st.integers(0, 2),
            resumed=st.integers(0, 2),
            seq=st.integers(0, 5),
        )
    )
)
def test_how_reports_are_shared_out_among_records_does_not_matter(them: list[TrialReport]) -> None:
    before = a_view(asked(0), asked(1))

    together = fold([Reports(tuple(them))], before)
    alone = fold((Reports((it,)) for it in them), before)

    assert replace(together, position=0) == replace(alone, position=0)


def test_reports_of_another_incarnation_are_left_out() -> None:
    view = a_view(asked(0), ERROR, begun(token=1, restart_errored=True), reported(0, s1=0.1))

    assert view.trials[0].values == {}


def test_the_last_attempt_decides_what_counts_even_if_it_reported_nothing() -> None:
    tell = replace(told(0), attempt=2, resumed=1)

    view = a_view(asked(0), reported(0, s1=0.9, s2=0.1), tell)

    assert view.trials[0].results == {1: 0.9}


# the best


def test_the_best_is_the_least_or_the_greatest_and_the_first_among_equals() -> None:
    view = a_view(
        *map(asked, range(6)),
        told(0, value="0.5"),
        told(1, value="0.25"),
        told(2, value="0.25"),
        told(3, "Errored", value="0.01"),
        told(4, "Diverged", value="nan"),
        reported(5, s1=math.nan),
    )

    least, greatest = (
        best(view, a_search().objective),
        best(view, a_search(goal="maximize").objective),
    )
    assert least is not None
    assert greatest is not None
    assert (least.trial.number, greatest.trial.number) == (1, 0)
    assert best(a_view(asked(0)), a_search().objective) is None


def test_infinity_is_a_value_and_not_a_number_is_none() -> None:
    """Edge case 33."""
    view = a_view(asked(0), asked(1), reported(0, s1=math.inf), reported(1, s1=math.nan))

    found = best(view, a_search().objective)

    assert found is not None
    assert (found.trial.number, found.own.value) == (0, math.inf)


def test_the_own_value_is_the_last_or_the_best_one() -> None:
    trial = a_view(asked(0), reported(0, s1=0.9, s2=0.1, s3=0.5)).trials[0]
    nothing = a_view(asked(0), reported(0, s1=math.nan)).trials[0]

    last, top = a_search().objective, a_search(value="best").objective
    assert own_value(trial, last).value == 0.5  # type: ignore[union-attr]
    assert (own_value(trial, top).value, own_value(trial, top).step) == (0.1, 2)  # type: ignore[union-attr]
    assert math.isnan(own_value(nothing, top).value)  # type: ignore[union-attr]
