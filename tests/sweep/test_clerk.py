"""What the clerk writes next, from the log and the targets."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from tests.support.sweeps import a_search, a_view, asked, begun, report, reported, told
from trainrun.contract import wire
from trainrun.sweep import clerk
from trainrun.sweep.records import (
    Amend,
    Ask,
    End,
    EndedRun,
    LogEntry,
    Record,
    Reports,
    Targets,
    Tell,
    TrialReport,
)
from trainrun.sweep.search import OneOf, Parameter, Search
from trainrun.sweep.view import SweepView, apply, fold

DONE = EndedRun(trial=0, opening=1, succeeded=True, attempt=1, seq=2)


def targets(**changes: Any) -> Targets:
    return replace(Targets(session=begun()), **changes)


def everything(
    view: SweepView,
    wanted: Targets,
    search: Search | None = None,
    *,
    stored: tuple[TrialReport, ...] = (),
) -> list[Record]:
    """All that is written until the log says it all."""
    found: list[Record] = []
    while record := clerk.next_record(view, wanted, search or a_search(), stored=stored):
        found.append(record)
        view = apply(view, record)
    return found


def told_as(view: SweepView, run: EndedRun, **search: Any) -> Tell:
    (record,) = everything(view, targets(ended=(run,)), a_search(**search))
    assert isinstance(record, Tell)
    return record


def test_a_session_comes_first_and_once() -> None:
    assert everything(SweepView(), targets()) == [begun()]
    assert everything(fold([begun(uid="old"), asked(0)]), targets(after=1)) == [begun()]
    assert everything(a_view(), targets()) == []


def test_a_clerk_of_an_old_session_writes_nothing_any_more() -> None:
    assert everything(a_view(begun(uid="new")), targets(asked=3)) == []


def test_a_session_that_was_ordered_before_a_newer_one_was_known_is_not_recorded() -> None:
    """An order that comes late must not end the session of whoever has taken the sweep over."""
    assert everything(fold([begun(uid="new")]), targets()) == []


def test_reports_that_were_never_sent_are_taken_from_the_store_before_an_end_is_told() -> None:
    view = a_view(asked(0), reported(0, s1=0.9))
    last = EndedRun(trial=0, opening=1, succeeded=True, attempt=2, resumed=2)
    stored = (report(0, 1, 0.9), report(0, 2, 0.5))

    wanted = targets(ended=(last,))
    record = clerk.next_record(view, wanted, a_search(), stored=stored)
    assert record == Reports((report(0, 2, 0.5),))
    tell = clerk.next_record(apply(view, record), wanted, a_search(), stored=stored)
    assert isinstance(tell, Tell)
    assert (tell.state, tell.value, tell.step) == ("Succeeded", "0.5", 2)


def test_an_objective_that_was_reported_as_text_is_not_said_to_have_never_been_reported() -> None:
    view = a_view(asked(0))

    tell = told_as(view, replace(DONE, seq=0, metrics=("loss", "epoch")))

    assert (tell.state, tell.reason) == ("Errored", "NoObjective")
    assert tell.message == (
        "the trial ended with success but reported loss only as text or true/false, not as a "
        'number: call trainrun.report({"loss": float(...)}, step=...)'
    )


def test_what_a_sweep_has_cost_is_counted_before_its_end_is_told() -> None:
    """Ten trials of a second each were said to have cost 0 ms."""
    view, search = a_view(asked(0), told(0)), a_search()
    wanted = targets(end=End("Succeeded", "AllTrialsEnded", "done"))

    first = clerk.next_record(view, wanted, search, active=3.5)

    assert first == Reports(active=3.5)
    assert clerk.next_record(apply(view, first), wanted, search) == wanted.end


def test_targets_may_come_twice_or_late() -> None:
    records = everything(a_view(), targets(asked=2))

    assert [it.trial for it in records if isinstance(it, Ask)] == [0, 1]
    view = fold(records, a_view())
    assert everything(view, targets(asked=2)) == []
    assert everything(view, targets(asked=1)) == []


def test_an_ask_has_the_fixed_parameters_too() -> None:
    (record,) = everything(a_view(), targets(asked=1), a_search(fixed=(("epochs", 20),)))

    assert isinstance(record, Ask)
    assert record.params["epochs"] == 20
    assert list(record.params) == ["lr", "optimizer", "epochs"]


def test_an_end_is_told_once_its_last_report_is_in_the_log() -> None:
    first = reported(0, s1=0.9)
    view = a_view(asked(0), first)

    assert everything(view, targets(ended=(DONE,))) == []
    stored = (report(0, 1, 0.9), report(0, 2, 0.5))
    wrote = everything(view, targets(ended=(DONE,)), stored=stored)
    assert wrote[0] == Reports((report(0, 2, 0.5),))
    assert isinstance(wrote[1], Tell)
    assert (wrote[1].state, wrote[1].value, wrote[1].step) == ("Succeeded", "0.5", 2)


def test_what_is_written_does_not_grow_with_the_number_of_trials_before() -> None:
    """Edge case 15: a state that grows makes every step slower than the one before."""

    def next_bytes(before: int) -> int:
        ended = (it for n in range(before) for it in (asked(n), reported(n, s1=0.5), told(n)))
        view = a_view(*ended, asked(before))
        run = replace(DONE, trial=before, seq=1)
        wanted = targets(asked=before + 2, ended=(run,), stopped=())
        written = everything(view, wanted, stored=(report(before, 1, 0.25),))
        assert [it.kind for it in written] == ["Reports", "Tell", "Ask"]
        return sum(len(json.dumps(wire.encode(LogEntry(it)))) for it in written)

    assert next_bytes(900) <= next_bytes(100) + 10


def test_an_errored_point_of_a_grid_is_tried_again_and_the_grid_is_whole() -> None:
    """Edge case 31: a retry takes no other point's place, and keeps what was reported."""
    grid = a_search(space=(Parameter("a", OneOf((1, 2, 3))),), sampler="Grid")
    first = everything(a_view(), targets(asked=2), grid)
    view = fold([reported(0, s1=0.5), told(0, "Errored")], a_view(*first))
    again = begun(token=1, resume_errored=True)
    view = fold([again], view)

    rest = everything(view, replace(targets(asked=3), session=again), grid)
    asks = [it for it in (*first, *rest) if isinstance(it, Ask)]
    assert sorted(it.params["a"] for it in asks) == [1, 2, 3]
    assert (view.trials[0].open, view.trials[0].values) == (True, {1: 0.5})
    assert view.trials[0].params == asks[0].params


def test_reports_are_written_in_records_of_bounded_size() -> None:
    many = tuple(report(0, it, 1.0) for it in range(1, 2002))

    sizes = [
        len(it.reports)
        for it in everything(a_view(asked(0)), targets(), stored=many)
        if isinstance(it, Reports)
    ]

    assert sizes == [1000, 1000, 1]


def test_success_without_the_metric_has_failed_and_says_how_to_report_it() -> None:
    """Edge case 24."""
    record = told_as(a_view(asked(0)), replace(DONE, seq=0))

    assert (record.state, record.reason) == ("Errored", "NoObjective")
    assert record.message == (
        "the trial ended with success but never reported loss: call "
        'trainrun.report({"loss": ...}, step=...)'
    )


def test_a_metric_that_the_script_calls_otherwise_is_told_with_the_names_that_were_reported() -> (
    None
):
    """Edge case 37."""
    record = told_as(a_view(asked(0)), replace(DONE, seq=0, metrics=("train_loss", "epoch")))

    assert record.message.startswith(
        "the trial ended with success but never reported loss, only train_loss, epoch: "
        "call trainrun.report"
    )


def test_a_failed_run_is_errored_by_its_cause_and_keeps_what_it_reported() -> None:
    run = EndedRun(
        trial=0, opening=1, succeeded=False, reason="OutOfMemory", message="killed", restarts=3
    )

    record = told_as(a_view(asked(0), reported(0, s1=0.5)), run)

    assert (record.state, record.reason, record.message) == ("Errored", "OutOfMemory", "killed")
    assert (record.value, record.restarts) == ("0.5", 3)


def test_success_with_a_value_that_is_no_number_has_diverged() -> None:
    record = told_as(a_view(asked(0), reported(0, s1=0.5, s2=math.nan)), DONE)

    assert (record.state, record.value) == ("Diverged", "nan")
    assert record.message == "its loss is not a number (step 2)"


def test_one_value_that_is_no_number_ends_nothing_and_two_do() -> None:
    once = a_view(asked(0), reported(0, s1=0.5, s2=math.nan))
    assert everything(once, targets()) == []

    twice = a_view(asked(0), reported(0, s1=0.5, s2=math.nan, s3=math.nan))
    (record,) = everything(twice, targets())
    assert isinstance(record, Tell)
    assert (record.state, record.value, record.step) == ("Diverged", "0.5", 1)
    assert record.message == ("its loss was not a number at two steps; objective.stopOnNaN ends it")
    lenient = replace(a_search(), objective=replace(a_search().objective, stop_on_nan=False))
    assert everything(twice, targets(), lenient) == []


def test_a_trial_that_the_user_stops_keeps_its_value() -> None:
    view = a_view(asked(0), asked(1), told(1), reported(0, s1=0.5))

    (record,) = everything(view, targets(stopped=(0, 1, 7)))

    assert isinstance(record, Tell)
    assert (record.trial, record.state, record.reason, record.value) == (
        0,
        "Stopped",
        "StoppedByUser",
        "0.5",
    )


def test_the_end_of_an_older_opening_is_not_told_again() -> None:
    """A failed run that is kept for its logs must not end the trial that was opened again."""
    view = a_view(asked(0), told(0, "Errored"), begun(token=1, resume_errored=True))
    old = EndedRun(trial=0, opening=1, succeeded=False, reason="AppError")

    wanted = replace(
        targets(ended=(old, replace(old, trial=9))), session=begun(token=1, resume_errored=True)
    )

    assert everything(view, wanted) == []


def test_nothing_is_asked_once_the_end_stands_there() -> None:
    end = End("Succeeded", "BudgetExhausted", "spent")

    wrote = everything(a_view(), targets(end=end, asked=3))

    assert wrote == [end]
    ended = a_view(end)
    assert everything(ended, targets(amend=2, asked=1))[0] == Amend(2)
    assert everything(ended, targets(amend=1)) == []


def test_work_is_counted_with_reports_or_every_ten_seconds() -> None:
    view = a_view(asked(0))

    assert clerk.next_record(view, targets(), a_search(), active=9.0) is None
    assert clerk.next_record(view, targets(), a_search(), active=10.0) == Reports(active=10.0)
    heard = (report(0, 1, 0.5),)
    record = clerk.next_record(view, targets(), a_search(), active=2.0, stored=heard)
    assert record == Reports((report(0, 1, 0.5),), active=2.0)
    assert apply(view, record).counted_at == 3
