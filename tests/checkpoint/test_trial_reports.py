"""What a trial's folder tells of the objective."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainrun.checkpoint.metrics_log import MetricsLog
from trainrun.checkpoint.records import AttemptRecord
from trainrun.checkpoint.run_store import RunStore, open_store
from trainrun.checkpoint.sweep_log import TrialReports
from trainrun.contract import layout
from trainrun.contract.checkpoint_id import CheckpointId
from trainrun.errors import StoreUnavailable
from trainrun.sweep.records import TrialReport


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    return RunStore(open_store(tmp_path.as_uri()), "sweep/trials/00003")


def reports_of(run: RunStore) -> TrialReports:
    return TrialReports(run=run, trial=3, incarnation=2, metric="loss")


def said(step: int, value: Any, *, rank: int = 0, metric: str = "loss") -> dict[str, Any]:
    return {"step": step, "rank": rank, "metrics": {metric: value, "time": 1.5}}


def short(reports: list[TrialReport]) -> list[tuple[int, int, int, str]]:
    return [(it.attempt, it.seq, it.step, it.value) for it in reports]


def test_reports_are_read_once_and_in_order(run: RunStore) -> None:
    log, reports = MetricsLog(1), reports_of(run)
    log.write(run, [said(1, 0.5), said(2, 0.25)])
    assert reports.read_on() == [
        TrialReport(3, 2, attempt=1, resumed=0, seq=1, step=1, value="0.5"),
        TrialReport(3, 2, attempt=1, resumed=0, seq=2, step=2, value="0.25"),
    ]
    assert reports.read_on() == []
    log.write(run, [said(3, 1)])
    assert short(reports.read_on()) == [(1, 3, 3, "1.0")]
    assert reports.heard(1) == 3
    assert reports.heard(2) == 0


@pytest.mark.parametrize("broken", [layout.metrics_key(1, 2), layout.attempt_key(2)])
def test_reports_are_not_lost_where_the_store_fails_while_they_are_read(
    broken: str, run: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The best value of a trial was missing for ever, and a trial that had ended never told."""
    log = MetricsLog(1)
    log.write(run, [said(1, 9.0), said(2, 0.1)])
    log.write(run, [said(3, 5.0)])
    MetricsLog(2).write(run, [said(4, 4.0)])
    run.write_once(layout.attempt_key(2), AttemptRecord(attempt=2, uid="me"))
    reports, healthy, get = reports_of(run), reports_of(run).read_on(), run.store.get

    def fail(key: str) -> bytes:
        if key == run.key(broken):
            raise StoreUnavailable("503 Slow Down")
        return get(key)

    with monkeypatch.context() as trouble:
        trouble.setattr(run.store, "get", fail)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                reports.read_on()
    assert reports.read_on() == healthy
    assert len(healthy) == 4
    assert reports.read_on() == []


def test_whoever_reads_later_counts_in_the_same_way(run: RunStore) -> None:
    log, first = MetricsLog(1), reports_of(run)
    read = []
    for step in range(1, 4):
        log.write(run, [said(step, step)])
        read += first.read_on()
    assert reports_of(run).read_on() == read


def test_each_attempt_tells_what_it_went_on_from(run: RunStore) -> None:
    resume = CheckpointId(attempt=1, step=20)
    record = AttemptRecord(attempt=2, uid="me", resume=resume)
    run.write_once(layout.attempt_key(2), record)
    MetricsLog(1).write(run, [said(21, 0.5)])
    MetricsLog(2).write(run, [said(21, 0.25)])
    found = reports_of(run).read_on()
    assert [(it.attempt, it.resumed, it.seq) for it in found] == [(1, 0, 1), (2, 20, 1)]
    assert reports_of(run).resumed(3) == 0


def test_an_objective_that_is_no_number_is_no_report_and_is_named(run: RunStore) -> None:
    reports = reports_of(run)
    MetricsLog(1).write(run, [said(1, "0.5"), said(2, True)])

    assert reports.read_on() == []
    assert reports.others == ["loss", "time"]


def test_the_lowest_rank_of_those_that_report_it_first_counts(run: RunStore) -> None:
    log = MetricsLog(1)
    log.write(
        run, [said(1, 9.0, rank=0, metric="other"), said(1, 3.0, rank=2), said(1, 2.0, rank=1)]
    )
    log.write(run, [said(2, 8.0, rank=0), said(2, 1.0, rank=1)])
    assert short(reports_of(run).read_on()) == [(1, 1, 1, "2.0"), (1, 2, 2, "1.0")]


def test_names_of_other_metrics_are_known_where_the_objective_is_not_reported(
    run: RunStore,
) -> None:
    log, reports = MetricsLog(1), reports_of(run)
    log.write(run, [said(1, 0.5)])
    reports.read_on()
    assert reports.others == []
    log.write(
        run, [said(2, 0.5, metric="x" * 99), *(said(3, 1, metric=f"m{n}") for n in range(20))]
    )
    reports.read_on()
    assert reports.others == ["x" * 64, "time", "m0", "m1", "m2", "m3", "m4", "m5"]


def test_what_is_no_number_is_told_and_what_is_no_value_is_left_out(run: RunStore) -> None:
    nan = {"float": "NaN"}
    MetricsLog(1).write(run, [said(1, nan), said(2, "text"), said(3, True), said(4, 4)])
    assert short(reports_of(run).read_on()) == [(1, 1, 1, "nan"), (1, 2, 4, "4.0")]


def test_lines_that_cannot_be_read_harm_no_other(run: RunStore) -> None:
    lines = b'{"step": 1}\nnoise\n{"step": Infinity, "rank": 0, "metrics": {"loss": 1.0}}\n'
    lines += b'{"step": 2, "rank": 0, "metrics": {"loss": 2.0}}\n[]\n'
    run.store.put_if_absent(run.key(layout.metrics_key(1, 1)), lines)
    assert short(reports_of(run).read_on()) == [(1, 1, 2, "2.0")]
