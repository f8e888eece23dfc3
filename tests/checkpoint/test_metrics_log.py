"""Metrics in the run's folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainrun.checkpoint.metrics_log import MetricsLog, read_metrics

if TYPE_CHECKING:
    from tests.support.checkpoints import Bench


def test_metrics_are_read_in_order_over_attempts(any_bench: Bench) -> None:
    first = MetricsLog(1)
    assert (
        first.write(any_bench.run, [{"step": 1, "loss": 0.5}, {"step": 2}])
        == "metrics/000001-00001.jsonl"
    )
    assert first.write(any_bench.run, []) is None
    assert first.write(any_bench.run, [{"step": 3}]) == "metrics/000001-00002.jsonl"
    MetricsLog(2).write(any_bench.run, [{"step": 2, "loss": {"float": "NaN"}}])
    assert list(read_metrics(any_bench.run)) == [
        {"attempt": 1, "step": 1, "loss": 0.5},
        {"attempt": 1, "step": 2},
        {"attempt": 1, "step": 3},
        {"attempt": 2, "step": 2, "loss": {"float": "NaN"}},
    ]


def test_a_piece_is_never_overwritten(bench: Bench) -> None:
    MetricsLog(1).write(bench.run, [{"step": 1}])
    assert MetricsLog(1).write(bench.run, [{"step": 2}]) == "metrics/000001-00002.jsonl"
    assert [record["step"] for record in read_metrics(bench.run)] == [1, 2]


def test_a_damaged_line_costs_only_itself(bench: Bench) -> None:
    MetricsLog(1).write(bench.run, [{"step": 1}])
    bench.run.store.put("digits/metrics/000001-00002.jsonl", b'{"step": 2}\n{"st\n[]\n')
    bench.run.store.put("digits/metrics/notes.txt", b"x")
    assert [record["step"] for record in read_metrics(bench.run)] == [1, 2]


def test_of_many_pieces_some_are_read_the_first_and_the_last_among_them(bench: Bench) -> None:
    log = MetricsLog(1)
    for step in range(1, 42):
        log.write(bench.run, [{"step": step}])
    assert [record["step"] for record in read_metrics(bench.run, most=5)] == [1, 11, 21, 31, 41]
    assert len(list(read_metrics(bench.run))) == 41


def test_a_piece_that_was_not_reached_is_read_the_next_time(bench: Bench) -> None:
    for attempt in (1, 2):
        MetricsLog(attempt).write(bench.run, [{"step": attempt}])
    known: set[str] = set()
    reading = read_metrics(bench.run, known=known)
    assert next(reading)["step"] == 1
    reading.close()  # as where the store fails
    assert [record["step"] for record in read_metrics(bench.run, known=known)] == [2]
    assert list(read_metrics(bench.run, known=known)) == []
